"""The fit of a trace: estimates, tests, the chosen model, and the scenario file."""

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from idleband import validation
from idleband.channels import channel_index, channel_label
from idleband.durable import write_durably
from idleband.errors import InputError, check_name, counted
from idleband.trace.fit.change_points import ChangePoint, Changes, find_changes
from idleband.trace.fit.checks import Checks, check_model
from idleband.trace.fit.correlation import Correlation, correlate
from idleband.trace.fit.counts import BUSY, IDLE, STATES, Counts, count
from idleband.trace.fit.dwell_times import GeometricTest, geometric_tests
from idleband.trace.fit.hazards import Hazard, hazard
from idleband.trace.fit.model_choice import Choice, choose
from idleband.trace.fit.models import Model, scenario_table
from idleband.trace.fit.transitions import TransitionEstimate, estimate_transitions, finite
from idleband.trace.fit.verdict import Verdict, judge
from idleband.trace.metadata import Metadata

MIN_SLOTS = 10
MODELS = ("auto", "markov", "semi-markov", "regimes")
HEADER_WIDTH = 100


@dataclass(frozen=True)
class ChannelFit:
    """What was estimated of one channel."""

    channel: int
    name: str
    occupancy: float
    p01: TransitionEstimate  # busy to idle
    p10: TransitionEstimate  # idle to busy
    geometric_p_values: tuple[float, float]  # of idle and busy dwell times; nan: too few transitions
    change_points: tuple[ChangePoint, ...]
    drift: tuple[float, float, float]  # change of the occupancy over the trace, with its interval

    def to_dict(self) -> dict[str, object]:
        """Return the estimates for JSON; null where a value is not defined."""
        return {
            "channel": self.channel,
            "name": self.name,
            "occupancy": self.occupancy,
            "p01": self.p01.to_dict(),
            "p10": self.p10.to_dict(),
            "idle_geometric_p_value": finite(self.geometric_p_values[0]),
            "busy_geometric_p_value": finite(self.geometric_p_values[1]),
            "change_points": [point.to_dict() for point in self.change_points],
            "drift": [finite(value) for value in self.drift],
        }


@dataclass(frozen=True)
class TraceFit:
    """Result of `Trace.fit`: what was estimated, the model that was chosen, and how far to trust it.

    Attributes
    ----------
    channels : tuple of ChannelFit
        Per channel: occupancy, p01 and p10 with intervals, p-values of geometric dwell times, change points, drift.
    geometric : tuple of two GeometricTest
        Tests of geometric dwell times, idle and busy, over all channels.
    correlation : Correlation
        Correlation between channels, and the effective number of channels.
    changes : Changes
        Change points and drift, per channel and common.
    choice : Choice
        Held-out log-loss of every model, and the chosen one.
    checks : Checks
        Quantities of the trace beside those of traces simulated from the chosen model.
    name : str
        Name of the scenario.
    users : int
        Number of channels to assign per slot.
    slots : int
        Number of slots of the trace.
    """

    channels: tuple[ChannelFit, ...]
    geometric: tuple[GeometricTest, GeometricTest]
    correlation: Correlation
    changes: Changes
    choice: Choice
    checks: Checks
    counts: Counts
    metadata: Metadata
    name: str
    users: int
    slots: int
    level: Any  # mean occupancy of all channels in up to 600 blocks, for the figure

    @property
    def model(self) -> Model:
        """The chosen model."""
        return self.choice.model

    @property
    def filled_share(self) -> float:
        """Share of values that were missing in the recording."""
        return self.metadata.filled / (self.slots * len(self.channels))

    @cached_property
    def verdict(self) -> Verdict:
        """How far to trust the scenario, in words."""
        return judge(self)

    def hazard(self, state: str, channel: int | str | None = None) -> Hazard:
        """Return the probability of leaving a state by age, with 95% intervals.

        Parameters
        ----------
        state
            "idle" or "busy".
        channel
            Index from 0, or name. By default all channels together.

        Returns
        -------
        Hazard
            Arrays `first_age`, `probability`, `low`, `high` and others, one entry per bin of age.
        """
        index = STATES.index(validation.choice(state, "state", STATES))
        names = self.metadata.channel_names
        k = None if channel is None else channel_index(channel, len(self.channels), names, "channel")
        return hazard(self.counts, index, k)

    def scenario_table(self) -> dict[str, Mapping[str, Any]]:
        """Return the scenario as a dict, as in a scenario file.

        Returns
        -------
        dict
            With the key `scenario`. `ib.scenario(fit.scenario_table()["scenario"])` builds it.
        """
        return scenario_table(self.model, self.name, self.users, self.metadata.channel_names)

    def save(self, path: str | Path) -> None:
        """Write the scenario to a TOML file, with the verdict as a comment.

        Parameters
        ----------
        path
            Name of the file, ending in .toml.

        Raises
        ------
        InputError
            If the name does not end in .toml.
        StorageError
            If the file cannot be written.
        """
        path = validation.path(path, "path", "file")
        if path.suffix != ".toml" or path.is_dir():
            raise InputError(f"out = {str(path)!r}: must be the name of a file that ends in .toml")
        write_durably(path, self.to_toml().encode())

    def to_toml(self) -> str:
        """Return the content of the scenario file."""
        slots = f"{self.slots:,} slots of {self.metadata.slot_s:g} s"
        lines = [f"Fitted to a trace of {slots}, {self.metadata.threshold_rule}."]
        lines += [self.verdict.headline, *(f"- {text}" for text in self.verdict.limits)]
        comment = "\n".join(
            textwrap.fill(line, HEADER_WIDTH, initial_indent="# ", subsequent_indent="# ") for line in lines
        )
        return f"{comment}\n\n{_in_rows(tomli_w.dumps(self.scenario_table()))}"

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON; null where a value is not defined."""
        idle, busy = self.geometric
        chosen = self.choice.chosen
        return {
            "slots": self.slots,
            "slot_s": self.metadata.slot_s,
            "threshold_rule": self.metadata.threshold_rule,
            "scenario": self.name,
            "users": self.users,
            "model": self.model.name,
            "regimes": getattr(self.model, "regimes", None),
            "log_loss": None if chosen is None else chosen.log_loss,
            "candidates": [candidate.to_dict() for candidate in self.choice.candidates],
            "share_used_for_regimes": self.choice.subsampled,
            "geometric_dwell_times": {"idle": idle.to_dict(), "busy": busy.to_dict()},
            "hazard": {state: self.hazard(state).to_dict() for state in STATES},
            "correlation": self.correlation.to_dict(),
            "changes": self.changes.to_dict(),
            "checks": [check.to_dict() for check in self.checks.quantities],
            "simulated_traces": self.checks.copies,
            "verdict": self.verdict.to_dict(),
            "channels": [channel.to_dict() for channel in self.channels],
        }

    def __repr__(self) -> str:
        K = len(self.channels)
        size = f"{counted(K, 'channel')}, {counted(self.slots, 'slot')}"
        regimes = getattr(self.model, "regimes", None)
        model = f"{regimes} common regimes" if regimes else self.model.name
        return f"TraceFit({size}: {model}, trust {self.verdict.trust})"


def fit_trace(
    busy: Any, metadata: Metadata, *, users: Any = None, name: str | None = None, model: str = "auto", seed: Any = 0
) -> TraceFit:
    """Fit a trace, an array `busy` of shape (T, K); see `Trace.fit`."""
    T, K = busy.shape
    if T < MIN_SLOTS:
        raise InputError(f"trace: has {counted(T, 'slot')}; a fit needs at least {MIN_SLOTS}")
    M = max(1, K // 5) if users is None else validation.whole(users, "users", 1, K)
    check_name(name, "name") if name is not None else None
    wanted = validation.choice(model, "model", MODELS)
    rng = np.random.Generator(np.random.PCG64(validation.whole(seed, "seed", 0, 2**63 - 1)))
    counts = count(busy)
    geometric = geometric_tests(counts)
    p10, p01 = estimate_transitions(busy, counts, np.stack([test.p_values for test in geometric]))
    changes = find_changes(busy, counts, rng)
    choice = choose(busy, counts, None if wanted == "auto" else wanted)
    names = metadata.channel_names
    occupancy = busy.mean(axis=0)
    channels = tuple(
        ChannelFit(
            k, channel_label(k, names), float(occupancy[k]), p01[k], p10[k],
            (float(geometric[IDLE].p_values[k]), float(geometric[BUSY].p_values[k])), changes.channels[k],
            (float(changes.drift[k]), float(changes.drift_low[k]), float(changes.drift_high[k])),
        )
        for k in range(K)
    )  # fmt: skip
    estimates = [np.array([one.probability for one in part]) for part in (p01, p10)]
    blocks = min(600, T)
    starts = np.arange(blocks) * T // blocks
    level = np.add.reduceat(busy.mean(axis=1), starts) / np.diff(np.append(starts, T))
    return TraceFit(
        channels, geometric, correlate(busy, *estimates), changes, choice, check_model(busy, choice.model, rng), counts,
        metadata, name or "fit", M, T, level,
    )  # fmt: skip


def _in_rows(toml: str) -> str:
    r"""Return TOML in which a line has as many numbers of a list as fit, instead of one.

    >>> print(_in_rows("a = [\n    0.5,\n    0.25,\n]"))
    a = [
        0.5, 0.25,
    ]
    """

    def wrapped(found: re.Match[str]) -> str:
        indent = found[1]
        return textwrap.fill(" ".join(found[0].split()), 100, initial_indent=indent, subsequent_indent=indent) + "\n"

    return re.sub(r"(?:^( +)[-+.0-9e]+,\n)+", wrapped, toml, flags=re.MULTILINE)


def scenario_name(text: str) -> str:
    """Return a name for a scenario made from any text, such as the name of a file.

    >>> scenario_name("lte, uplink (3).parquet"), scenario_name("..")
    ('lte uplink 3 .parquet', 'fit')
    """
    plain = re.sub(r"[^A-Za-z0-9._+-]+", " ", text).replace("..", ".").strip(" ._+-")[:80].strip()
    return plain if plain and ".." not in plain else "fit"
