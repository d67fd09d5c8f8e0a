"""Thresholds above which a channel is busy.

The default is a noise floor per channel plus a margin of 6 dB. The noise floor is the 10th percentile of the readings
of the channel. It is close to the mean of the lowest fifth of the readings, an established estimator in occupancy
measurements, and holds as long as the channel is idle in at least a tenth of the slots: if it is idle in 20% of them,
the 10th percentile of all readings is the median of the noise. With Gaussian noise in dB, of standard deviation up to
1.4 dB as after averaging, fewer than one idle slot in a thousand exceeds floor + 6 dB.

Two assumptions can fail, and each leaves a note in the trace. A channel that is busy in more than 90% of the slots has
its floor in the signal and then appears idle: its floor is far above those of its neighbours. Spectra that are not
averaged vary by 10 dB and more, and noise then exceeds the threshold often.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from idleband.arrays import Floats
from idleband.channels import channel_label
from idleband.errors import InputError, counted, shown

QUANTILE = 0.10
MARGIN = 6.0
MIN_SLOTS = 50  # with fewer, a note is left
NEIGHBOURS = 10  # channels on either side with which a floor is compared
MAX_SAMPLE = 2**24  # readings from which floors are estimated; slots are taken at equal distances
BLOCK = 2**20  # readings whose quantiles are computed at a time
REWARD_THRESHOLD = 0.5
NOTES = ("the noise floor ", "low readings ")  # how notes about thresholds begin
RULE = re.compile(r"(floor|q([0-9.]+))\s*([+-]\s*[0-9.]+)?")
EXPECTED = "must be a level such as -70, or a margin above the noise floor such as floor+8 or q10+8"


@dataclass(frozen=True)
class ThresholdRule:
    """An absolute level, or a quantile of the readings of each channel plus a margin."""

    level: float | None = None
    quantile: float = QUANTILE
    margin: float = MARGIN

    @classmethod
    def parse(cls, rule: Any, field: str = "threshold") -> "ThresholdRule":
        """Return the rule of a number, of text such as "-70", "floor+8" or "q10+8", or of None (the default).

        >>> ThresholdRule.parse("q5+3")
        ThresholdRule(level=None, quantile=0.05, margin=3.0)
        """
        if rule is None:
            return cls()
        if isinstance(rule, ThresholdRule):
            return rule
        text = rule.strip().lower() if isinstance(rule, str) else rule
        try:
            level = float("x" if isinstance(text, bool) else text)
        except (TypeError, ValueError):
            found = RULE.fullmatch(text) if isinstance(text, str) else None
        else:
            if math.isfinite(level):
                return cls(level=level)
            found = None
        if found is None:
            raise InputError(f"{field} = {shown(rule)}: {EXPECTED}")
        try:
            quantile = QUANTILE if found[2] is None else float(found[2]) / 100
            margin = MARGIN if found[3] is None else float(found[3].replace(" ", ""))
        except ValueError:
            raise InputError(f"{field} = {shown(rule)}: {EXPECTED}") from None
        if not 0 < quantile < 1:
            raise InputError(f"{field} = {shown(rule)}: the percentile must be above 0 and below 100")
        return cls(quantile=quantile, margin=margin)

    def apply(self, sample: Any, unit: str, names: Sequence[str]) -> tuple[Floats, str, list[str]]:
        """Return a threshold per channel, a sentence about the rule, and notes, from a sample of (n, K) readings."""
        if self.level is not None:
            level = np.full(sample.shape[1], self.level)
            return level, f"busy above {self.level:g} {unit}, the same level for all channels", []
        ratio = "dB" if unit != "digits" else "digits"
        low, floor = _quantiles(sample, (min(0.01, self.quantile / 2), self.quantile))
        sentence = (
            f"busy above the {100 * self.quantile:g}th percentile of the channel {self.margin:+g} {ratio}"
            f" (noise floor {floor.min():.4g} to {floor.max():.4g} {unit})"
        )
        notes = self._notes(floor, floor - low, ratio, names)
        if len(sample) < MIN_SLOTS:
            notes.insert(0, f"the noise floor is estimated from {counted(len(sample), 'slot')} only, and not reliable")
        return floor + self.margin, sentence, notes

    def _notes(self, floor: Floats, spread: Floats, ratio: str, names: Sequence[str]) -> list[str]:
        K, notes = len(floor), []
        around = _medians_of_others(floor) if K > 2 else floor
        high = np.flatnonzero(floor > around + max(self.margin, 3.0))
        if len(high):
            notes.append(
                f"the noise floor of {_listed(high, names)} is more than {max(self.margin, 3.0):g} {ratio} above that"
                " of the neighbouring channels: such a channel may be busy most of the time and appear idle;"
                " give a level with --threshold, or leave it out"
            )
        wide = np.flatnonzero(spread > max(self.margin, 1.0) / 2)
        if len(wide):
            notes.append(
                f"low readings of {_listed(wide, names)} vary by up to {spread.max():.3g} {ratio}, as spectra without"
                " averaging do: noise may exceed the threshold often; use longer slots (--slot) or a larger margin"
            )
        return notes


def _quantiles(sample: Any, shares: Sequence[float]) -> Floats:
    """Return quantiles of each channel, a few channels at a time to save memory."""
    size = max(1, BLOCK // len(sample))
    parts = [sample[:, k : k + size] for k in range(0, sample.shape[1], size)]
    return np.concatenate([np.quantile(part.astype(float), shares, axis=0) for part in parts], axis=1)


def _medians_of_others(floor: Floats) -> Floats:
    """Return the median of the floors of the neighbours of each channel."""
    found = np.empty(len(floor))
    for k in range(len(floor)):
        near = floor[max(0, k - NEIGHBOURS) : k + NEIGHBOURS + 1]
        found[k] = np.median(np.delete(near, min(k, NEIGHBOURS)))
    return found


def notes_without_threshold(notes: Sequence[str]) -> tuple[str, ...]:
    """Return the notes of a trace that are not about its threshold, which is replaced."""
    return tuple(note for note in notes if not note.startswith(NOTES))


def sample_step(T: int, K: int) -> int:
    """Return the distance of the slots from which floors are estimated: 1, all slots, up to 17 million readings."""
    return max(1, math.ceil(T * K / MAX_SAMPLE))


def reward_rule(rule: Any, field: str = "threshold") -> float:
    """Return the reward below which a channel counts as busy, where a trace has rewards and no power."""
    if rule is None:
        return REWARD_THRESHOLD
    parsed = ThresholdRule.parse(rule, field)
    if parsed.level is None or not 0 <= parsed.level <= 1:
        raise InputError(f"{field} = {shown(rule)}: the trace has rewards; must be a reward from 0 to 1")
    return parsed.level


def _listed(channels: Any, names: Sequence[str]) -> str:
    shown_names = ", ".join(channel_label(int(k), names) for k in channels[:4]) + ", ..." * (len(channels) > 4)
    return f"{counted(len(channels), 'channel')} ({shown_names})"
