"""How far a fitted scenario can be trusted, in words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from idleband.trace.fit.intervals import SIGNIFICANT

if TYPE_CHECKING:
    from idleband.trace.fit.fit import TraceFit

FEW = 20  # periods of a channel
MODEL_TEXT = {
    "markov": "independent two-state Markov channels",
    "semi-markov": "independent channels with hazards by age (semi-Markov)",
    "regimes": "two-state channels with {regimes} common regimes",
}


@dataclass(frozen=True)
class Verdict:
    """Judgement of a fit: a headline and the reasons for it."""

    trust: str  # high, limited or low
    headline: str
    limits: tuple[str, ...]  # what the model misses, and what the data cannot support
    support: tuple[str, ...]  # what agrees with the model

    def to_dict(self) -> dict[str, object]:
        """Return the verdict for JSON."""
        return {
            "trust": self.trust,
            "headline": self.headline,
            "limits": list(self.limits),
            "support": list(self.support),
        }


def judge(fit: "TraceFit") -> Verdict:
    """Return the verdict on a fit."""
    serious: list[str] = []
    limits: list[str] = []
    support: list[str] = []
    _judge_data(fit, serious, limits)
    _judge_stationarity(fit, serious, limits, support)
    _judge_dwell_times(fit, serious, limits, support)
    _judge_dependence(fit, serious, limits, support)
    _judge_checks(fit, serious, limits, support)
    if fit.choice.subsampled < 1 and fit.model.name == "regimes":
        limits.append(f"The regimes were fitted to {fit.choice.subsampled:.0%} of the slots, evenly spread.")
    text = MODEL_TEXT[fit.model.name].format(regimes=getattr(fit.model, "regimes", 0))
    if serious:
        trust, advice = "low", "Use it as a rough sketch, and check conclusions on the trace itself."
    elif limits:
        trust, advice = "limited", "Conclusions that depend on the limits below need a check on the trace itself."
    else:
        trust, advice = "high", "It agrees with the trace in everything that was checked."
    return Verdict(trust, f"Trust is {trust}: the scenario has {text}. {advice}", (*serious, *limits), tuple(support))


def _some(n: int, K: int) -> str:
    if K == 1:
        return "the channel"
    return f"all {K} channels" if n == K else f"{n} of {K} channels"


def _judge_data(fit: "TraceFit", serious: list[str], limits: list[str]) -> None:
    channels = fit.channels
    K = len(channels)
    always = sum(channel.occupancy == 1 for channel in channels)
    never = sum(channel.occupancy == 0 for channel in channels)
    for n, word in ((never, "never"), (always, "always")):
        if n:
            target = serious if n == K else limits
            verb = "is" if n == 1 else "are"
            target.append(
                f"{_capital(_some(n, K))} {verb} {word} busy. How often that changes is not known, only that it is"
                " rare."
            )
    few = sum(0 < min(channel.p01.transitions, channel.p10.transitions) < FEW for channel in channels)
    if few:
        target = serious if 2 * few > K else limits
        target.append(
            f"{_capital(_some(few, K))} changed state fewer than {FEW} times in one direction: the intervals of p01 and"
            " p10 are wide, and dwell times are hardly known."
        )
    if not fit.choice.candidates:
        serious.append(
            "The trace is too short to compare models on held-out parts; two-state Markov channels were assumed."
        )
    if fit.filled_share > 0.01:
        limits.append(f"{fit.filled_share:.1%} of the values were missing and replaced, which lengthens dwell times.")


def _judge_stationarity(fit: "TraceFit", serious: list[str], limits: list[str], support: list[str]) -> None:
    changes, K = fit.changes, len(fit.channels)
    if not changes.tested:
        limits.append("No channel has enough periods to test whether its occupancy changes over time.")
        return
    cause = (
        "a stationary model does not describe the recording"
        if fit.model.name != "regimes"
        else "common regimes, which return, describe part of this; changes that stay are missing"
    )
    if changes.changed:
        target = serious if changes.changed > 0.2 * K and fit.model.name != "regimes" else limits
        target.append(f"Change points of the occupancy in {_some(changes.changed, K)}: {cause}.")
    if changes.common:
        shown = ", ".join(f"{point.slot:,}" for point in changes.common[:4])
        more = f" and {len(changes.common) - 4} more" if len(changes.common) > 4 else ""
        target = limits if fit.model.name == "regimes" else serious
        n = len(changes.common)
        target.append(
            f"The occupancy of many channels changes together at slot{'s' * (n > 1)} {shown}{more}; the scenario has no"
            " change at a given time."
        )
    change, low, high = changes.common_drift
    if changes.common_drift_p_value < SIGNIFICANT:
        limits.append(
            f"The mean occupancy {'rises' if change > 0 else 'falls'} by {abs(change):.3f} over the trace (95% interval"
            f" {_span(low, high, change)}); the scenario has no drift."
        )
    if not changes.changed and not changes.common:
        tested = f"{changes.tested} channels that were" if changes.tested > 1 else "one channel that was"
        support.append(f"No change point of the occupancy was found in the {tested} tested.")


def _span(low: float, high: float, sign: float) -> str:
    ends = (low, high) if sign > 0 else (-high, -low)
    return f"{ends[0]:.3f} to {ends[1]:.3f}"


def _judge_dwell_times(fit: "TraceFit", serious: list[str], limits: list[str], support: list[str]) -> None:
    tests = fit.geometric
    tested = [test for test in tests if test.tested]
    if not tested:
        limits.append("No channel has enough transitions to test the distribution of dwell times.")
        return
    rejected = [test for test in tested if test.rejected]
    if not rejected:
        support.append("Dwell times agree with geometric ones in all channels that could be tested.")
        return
    single = len(fit.channels) == 1
    counts = ", ".join(
        test.state if single else f"{test.state} in {test.rejected} of {test.tested} tested channels"
        for test in rejected
    )
    text = f"Dwell times are not geometric ({counts})"
    if fit.model.name == "markov":
        limits.append(f"{text}. The difference is too small to improve held-out predictions.")
    elif fit.model.name == "semi-markov":
        support.append(f"{text}; the hazards by age describe that.")
    else:
        semi, markov = _candidate(fit, "semi-markov"), _candidate(fit, "markov")
        ages = ""
        if semi is not None and markov is not None and semi < 0.95 * markov:
            ages = f" Ages alone lower the log-loss from {markov:.3f} to {semi:.3f}; the scenario does not use them."
        spread = [check for check in fit.checks.quantities if check.name.endswith("cv2")]
        if all(check.agrees for check in spread):
            support.append(f"{text}; regimes give simulated periods the same CV².{ages}")
        else:
            limits.append(f"{text}, but within a regime those of the scenario are.{ages}")


def _candidate(fit: "TraceFit", name: str) -> float | None:
    found = [candidate.log_loss for candidate in fit.choice.candidates if candidate.name == name]
    return min(found) if found else None


def _judge_dependence(fit: "TraceFit", serious: list[str], limits: list[str], support: list[str]) -> None:
    found = fit.correlation
    if math.isnan(found.mean):
        return
    independent = fit.model.name != "regimes"
    if found.significant > 0.05 and independent:
        target = serious if abs(found.mean) > 0.1 else limits
        change = "fewer" if found.mean > 0 else "more"
        target.append(
            f"Channels are not independent (mean correlation {found.mean:.2f}; {found.channels} channels vary like"
            f" {found.effective_channels:.1f} independent ones), but those of the scenario are: it has {change} slots"
            " in which nearly all channels are busy, or nearly all are idle."
        )
    elif found.significant <= 0.05:
        support.append(f"Channels are nearly uncorrelated (mean correlation {found.mean:.2f}).")
    if not independent and found.adjacent > found.mean + 0.1:
        limits.append(
            f"Neighbouring channels are more alike (correlation {found.adjacent:.2f}) than others ({found.mean:.2f});"
            " common regimes treat all pairs alike."
        )


def _judge_checks(fit: "TraceFit", serious: list[str], limits: list[str], support: list[str]) -> None:
    for check in fit.checks.failed():
        # A deviation by a factor matters; a small one that many data make significant does not.
        large = not check.typical / 2 < check.observed < check.typical * 2
        text = (
            f"{_capital(check.label)}: {check.observed:.3g} in the trace, {check.low:.3g} to {check.high:.3g} in"
            " simulated traces."
        )
        (serious if large and not check.name.endswith("cv2") else limits).append(text)
    agree = [check.label for check in fit.checks.quantities if check.agrees]
    if agree and fit.choice.candidates:
        support.append(f"Simulated traces agree with the trace in: {_listed(agree)}.")


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
