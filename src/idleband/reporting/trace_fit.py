"""Description of the fit of a trace as text for a terminal of 80 columns and as JSON."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from idleband.errors import counted
from idleband.reporting.text import definitions, paragraph, table
from idleband.reporting.trace import MAX_LISTED, duration
from idleband.trace.fit.change_points import ChangePoint
from idleband.trace.fit.counts import STATES
from idleband.trace.fit.dwell_times import GeometricTest
from idleband.trace.fit.fit import ChannelFit, TraceFit
from idleband.trace.fit.intervals import SIGNIFICANT
from idleband.trace.fit.models import RegimeModel
from idleband.trace.fit.transitions import TransitionEstimate

MAX_POINTS = 8  # change points in a line

LEGEND = (
    "p01, p10: probabilities from busy to idle and from idle to busy, per slot. Intervals are 95%: binomial, which"
    " assumes a two-state Markov channel, or (b) from the variance between blocks of the trace, where that is rejected."
    " Hazard: probability of leaving a state by age, the number of slots in it; with all channels together, and"
    " intervals from blocks. Log-loss: of the next states of all channels given all earlier ones, on parts of the trace"
    " that were not used to fit, in nats per channel and slot; excess: over the best model, with its standard error."
    " The log-loss of single channels ignores what channels have in common in the same slot. Simulated: mean plus and"
    " minus three standard deviations in traces of the fitted model."
)


def fit_text(fit: TraceFit, path: Path) -> str:
    """Return the description of a fit."""
    parts = [
        definitions(_head(fit, path)),
        _verdict(fit),
        *([table(_models(fit))] if fit.choice.candidates else []),
        *([table(_regimes(fit.model))] if isinstance(fit.model, RegimeModel) else []),
        table(_channels(fit)),
        definitions(_tests(fit)),
        *([table(_hazards(fit))] if any(test.tested for test in fit.geometric) else []),
        table(_checks(fit)),
        paragraph(LEGEND),
    ]
    return "\n\n".join(parts)


def fit_json(fit: TraceFit, path: Path, out: Path) -> dict[str, Any]:
    """Return the numbers of a fit."""
    return {"trace": str(path), "out": str(out), **fit.to_dict()}


def model_name(fit: TraceFit) -> str:
    """Return the chosen model in words."""
    names = {"markov": "two-state Markov channels", "semi-markov": "semi-Markov channels, with hazards by age"}
    if isinstance(fit.model, RegimeModel):
        return f"two-state channels with {fit.model.regimes} common regimes"
    return names[fit.model.name]


def _head(fit: TraceFit, path: Path) -> list[tuple[str, str]]:
    K, slot_s = len(fit.channels), fit.metadata.slot_s
    size = f"{counted(fit.slots, 'slot')} of {slot_s:g} s ({duration(fit.slots * slot_s)}), {counted(K, 'channel')}"
    return [
        ("trace", f"{path}: {size}"),
        ("busy", fit.metadata.threshold_rule),
        ("model", f"{model_name(fit)}; {counted(fit.users, 'user')}"),
        ("trust", fit.verdict.trust),
    ]


def _verdict(fit: TraceFit) -> str:
    verdict = fit.verdict
    lines = [paragraph(verdict.headline)]
    if verdict.limits:
        lines += ["", "Limits", *(paragraph(f"- {text}", 2) for text in verdict.limits)]
    if verdict.support:
        lines += ["", "In its favour", *(paragraph(f"- {text}", 2) for text in verdict.support)]
    return "\n".join(lines)


def _models(fit: TraceFit) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("model", "log-loss", "excess", "single channels")]
    for candidate in fit.choice.candidates:
        best = candidate.excess == 0
        excess = "-" if best else f"{candidate.excess:.5f} ±{candidate.excess_error:.5f}"
        label = f"{candidate.label}{' (chosen)' * (candidate is fit.choice.chosen)}"
        rows.append((label, f"{candidate.log_loss:.5f}", excess, f"{candidate.single_log_loss:.5f}"))
    return rows


def _regimes(model: RegimeModel) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("regime", "share of slots", "mean duration", "occupancy", "median p01", "median p10")
    ]
    for i in range(model.regimes):
        occupancy = float(np.mean(model.p10[i] / (model.p01[i] + model.p10[i])))
        slots = 1 / max(1e-9, 1 - model.transition[i, i])
        rows.append((
            str(i), f"{model.share[i]:.3f}", f"{slots:.3g} slots", f"{occupancy:.3f}",
            f"{np.median(model.p01[i]):.3f}", f"{np.median(model.p10[i]):.4f}",
        ))  # fmt: skip
    return rows


def _channels(fit: TraceFit) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("channel", "occupancy", "p01", "95%", "p10", "95%", "changes")]
    if len(fit.channels) <= MAX_LISTED:
        rows += [_channel(channel) for channel in fit.channels]
    if len(fit.channels) > 1:
        rows += [_at_quantile(fit, label, share) for label, share in (("minimum", 0), ("median", 0.5), ("maximum", 1))]
    return rows


def _at_quantile(fit: TraceFit, label: str, share: float) -> tuple[str, ...]:
    """Return the quantile over channels of each column, with the interval of the channel nearest to it."""
    cells = [label, f"{np.quantile([channel.occupancy for channel in fit.channels], share):.3f}"]
    for name in ("p01", "p10"):
        known = [one for channel in fit.channels if np.isfinite((one := getattr(channel, name)).probability)]
        if known:
            value = float(np.quantile([one.probability for one in known], share))
            nearest = int(np.argmin([abs(one.probability - value) for one in known]))
            cells += [_number(value), _interval(known[nearest])]
        else:
            cells += ["-", ""]
    changes = np.quantile([len(channel.change_points) for channel in fit.channels], share)
    return (*cells, f"{changes:g}")


def _interval(one: TransitionEstimate) -> str:
    return f"{_short(one.low)}-{_short(one.high)}{' b' if one.method == 'blocks' else ''}"


def _channel(channel: ChannelFit) -> tuple[str, ...]:
    cells = [channel.name, f"{channel.occupancy:.3f}"]
    for one in (channel.p01, channel.p10):
        cells += [_number(one.probability), _interval(one)]
    return (*cells, str(len(channel.change_points)))


def _tests(fit: TraceFit) -> list[tuple[str, str]]:
    found, changes = fit.correlation, fit.changes
    entries = [(f"{test.state} periods", _test(test)) for test in fit.geometric]
    if np.isfinite(found.mean):
        entries.append((
            "correlation",
            f"{found.mean:.2f} between channels in the mean, {found.adjacent:.2f} between neighbours, significant in"
            f" {found.significant:.0%} of pairs; {found.channels} channels vary like {found.effective_channels:.1f}"
            f" independent ones; correlation of transitions {found.simultaneous:.2f}",
        ))  # fmt: skip
    if changes.tested:
        entries.append((
            "changes",
            f"change points of the occupancy in {changes.changed} of {changes.tested} tested channels (1%"
            " family-wise)",
        ))  # fmt: skip
    if changes.tested and len(fit.channels) > 1:
        if not changes.block_slots:
            text = "not tested: the trace is too short"
        elif changes.common:
            text = f"{_points(changes.common, fit)} (p = {changes.common_p_value:.2g})"
        elif changes.common_p_value <= SIGNIFICANT:
            text = f"none in which many channels take part (p = {changes.common_p_value:.2g})"
        else:
            text = f"none found (p = {changes.common_p_value:.2g}, blocks of {changes.block_slots} slots)"
        if changes.short_blocks and changes.block_slots:
            text += "; the trace is short beside the time for which occupancy is correlated, and slow variation counts"
        entries.append(("common changes", text))
    change, low, high = changes.common_drift
    if np.isfinite(change):
        text = f"mean occupancy {change:+.3f} over the trace (95%: {low:+.3f} to {high:+.3f})"
        if len(fit.channels) > 1:
            text += f"; significant in {counted(changes.drifting, 'channel')}"
        entries.append(("drift", text))
    return entries


def _points(points: Sequence[ChangePoint], fit: TraceFit) -> str:
    shown = [f"slot {point.slot:,} ({point.before:.2f} to {point.after:.2f})" for point in points[:MAX_POINTS]]
    return ", ".join(shown) + (f" and {len(points) - MAX_POINTS} more" if len(points) > MAX_POINTS else "")


def _test(test: GeometricTest) -> str:
    if not test.tested:
        return "too few transitions to test whether they are geometric"
    p = f"p = {test.pooled:.2g}" if test.pooled > 1e-6 else "p < 0.000001"
    return f"geometric rejected in {test.rejected} of {test.tested} tested channels (1% family-wise); pooled {p}"


def _hazards(fit: TraceFit) -> list[tuple[str, ...]]:
    idle, busy = (fit.hazard(state) for state in STATES)
    rows: list[tuple[str, ...]] = [("hazard at age", "idle", "95%", "geometric", "busy", "95%", "geometric")]
    longest = max((idle, busy), key=lambda part: len(part.first_age))
    powers_of_two = [i for i, age in enumerate(longest.first_age) if int(age).bit_count() == 1]
    for i in powers_of_two:
        cells = [_age(longest.first_age, i)]
        for part in (idle, busy):
            if i >= len(part.first_age) or not part.slots[i]:
                cells += ["", "", ""]
            else:
                cells += [
                    _number(part.probability[i]), f"{_short(part.low[i])}-{_short(part.high[i])}",
                    _number(part.geometric[i]),
                ]  # fmt: skip
        rows.append(tuple(cells))
    return rows


def _age(first: Any, i: int) -> str:
    begin = int(first[i])
    if i + 1 == len(first):
        return f"{begin} or more"
    end = int(first[i + 1]) - 1
    return str(begin) if begin == end else f"{begin}-{end}"


def _checks(fit: TraceFit) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("quantity", "trace", "simulated", "")]
    for check in fit.checks.quantities:
        verdict = "agrees" if check.agrees else "differs"
        rows.append((check.label, f"{check.observed:.3g}", f"{check.low:.3g} to {check.high:.3g}", verdict))
    return rows


def _number(value: float) -> str:
    return f"{value:.4f}" if np.isfinite(value) else "-"


def _short(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")
