"""What determines the states and observations of a scenario besides Markov chains, in words."""

from collections.abc import Mapping, Sequence
from typing import Any

from idleband.channels import channel_label
from idleband.errors import counted
from idleband.reporting.trace import duration

Fact = tuple[str, str]


def process_facts(data: Mapping[str, Any]) -> list[Fact]:
    """Return the terms and their explanations from the data of a card; only what is present."""
    writers = {
        "trace": _recording,
        "mean_dwell": _dwell,
        "regimes": _regimes,
        "shocks": _shocks,
        "correlation": _correlation,
        "sensing_errors": _errors,
    }
    facts = [fact for key, write in writers.items() if key in data for fact in write(data)]
    costs = []
    if data.get("sensing_time"):
        costs.append(f"sensing takes {data['sensing_time']:g} of a slot per channel and user")
    if data.get("switching_cost"):
        costs.append(f"{data['switching_cost']:g} for each channel that was not selected in the slot before")
    return [*facts, *([("costs", "; ".join(costs))] if costs else [])]


def context_text(context: Mapping[str, Any]) -> str:
    """Return the contexts in words."""
    d = context["dimension"]
    text = f"{context['kind']}, {counted(d, 'dimension')}"
    if context["kind"] == "ar1":
        text += f", correlation {context['correlation']:g} from slot to slot, {context['margin']} margin"
    if context["kind"] == "recorded":
        text += f", from {context.get('file') or 'the trace'}"
    return text


def _recording(data: Mapping[str, Any]) -> list[Fact]:
    given = data["trace"]
    blocks = f"{counted(given['blocks'], 'block')} of {counted(given['block'], 'slot')}"
    return [
        (
            "trace",
            f"{given['file'] or 'in memory'}: {counted(given['slots'], 'slot')} of {given['slot_s']:g} s"
            f" ({duration(given['slots'] * given['slot_s'])}), replayed in {blocks}",
        ),
        ("busy", given["threshold_rule"]),
    ]


def _dwell(data: Mapping[str, Any]) -> list[Fact]:
    parts = []
    for state in ("good", "bad"):
        kinds = ", ".join(dict.fromkeys(one["kind"] for one in data["dwell"][state]))
        parts.append(f"{state} {kinds}, mean {_range(data['mean_dwell'][state])} slots")
    return [("dwell times", "; ".join(parts))]


def _regimes(data: Mapping[str, Any]) -> list[Fact]:
    given = data["regimes"]
    count = len(given["p01"])
    if "at" not in given:
        return [("regimes", f"{count}, changing at random for all channels together")]
    slots = given["at"]
    listed = ", ".join(f"{t:,}" for t in slots[:5]) + (f" and {len(slots) - 5} more" if len(slots) > 5 else "")
    return [("regimes", f"{count} in turn; the next one begins in slot {listed}")]


def _shocks(data: Mapping[str, Any]) -> list[Fact]:
    given = data["shocks"]
    hit = given.get("channels")
    which = "any channel" if hit is None else _listed(hit, data.get("channel_names", ()))
    return [
        (
            "shocks",
            f"begin with probability {given['start']:g} per slot, end with {given['end']:g}; each hits {which} with"
            f" probability {given['share']:g}",
        )
    ]


def _correlation(data: Mapping[str, Any]) -> list[Fact]:
    given = data["correlation"]
    parts = {"all channels": given["common"], "neighbours": given["neighbours"]}
    return [("correlation", "of draws, " + ", ".join(f"{value:g} with {who}" for who, value in parts.items() if value))]


def _errors(data: Mapping[str, Any]) -> list[Fact]:
    given = data["sensing_errors"]
    missed, false_alarm = (_range(value if isinstance(value, list) else [value]) for value in given.values())
    return [("sensing errors", f"busy observed as idle {missed}, idle as busy {false_alarm}")]


def _range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"


def _listed(channels: Sequence[int], names: Sequence[str]) -> str:
    shown = [channel_label(k, names) for k in channels[:8]]
    return "one of " + ", ".join(shown) + (f" and {len(channels) - 8} more" if len(channels) > 8 else "")
