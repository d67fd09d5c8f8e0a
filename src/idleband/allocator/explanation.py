"""Why a decision was taken: the numbers behind it, and a few sentences. Channels are numbered from 1 in sentences."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from idleband.allocator.events import Record
from idleband.allocator.settings import Settings
from idleband.allocator.slot_kernels import BELIEVED, INDEX, STATUS
from idleband.policies.protocol import BELIEF, ESTIMATE, WIDTH

if TYPE_CHECKING:
    from idleband.allocator.learner import Learner

# Why a channel was not handed out.
STATUSES = AVAILABLE, UNAVAILABLE, VACATED, WITHHELD = "available", "unavailable", "vacated", "withheld"


@dataclass(frozen=True)
class Term:
    """What stood behind one channel; nan where the policy has no such number."""

    channel: int  # from 0
    handed_out: bool
    status: str  # available, unavailable, vacated (to be left), or withheld (a primary user is too likely)
    index: float  # what channels are ranked by
    estimate: float
    width: float
    belief: float  # the chance that no primary user was there: the policy's own, or else the allocator's
    primary_user: float  # the chance of one, as the allocator has it: what the collision limit goes by


@dataclass(frozen=True)
class Explanation:
    """A decision explained; `print` shows the sentences.

    >>> from idleband import Allocator
    >>> allocator = Allocator("mp-ucb", channels=3, users=1, dimension=1)
    >>> print(allocator.explain(allocator.allocate(None).id))
    Slot 1: channel 1 of 3, chosen by mp-ucb. It has not been tried yet, and comes first for that.
    """

    id: str | int
    slot: int
    by: str  # policy, incumbent or fallback
    policy: str  # whose numbers these are
    estimate_is: str  # what the estimate is in this policy
    width_is: str
    channels: tuple[Term, ...]
    text: str

    def __str__(self) -> str:
        return self.text

    def as_data(self) -> dict[str, Any]:
        """As JSON can hold it: None for what is not a finite number."""

        def plain(value: Any) -> Any:
            return None if isinstance(value, float) and not math.isfinite(value) else value

        terms = [{key: plain(value) for key, value in vars(term).items()} for term in self.channels]
        return {**vars(self), "channels": terms}


def explanation(settings: Settings, learner: "Learner", record: Record) -> Explanation:
    decision, terms = record.decision, record.terms
    handed_out = set(decision.channels)
    rows = []
    for k in range(settings.channels):
        own = float(terms[k, BELIEF])
        believed = float(terms[k, BELIEVED])
        rows.append(
            Term(
                channel=k,
                handed_out=k in handed_out,
                status=STATUSES[int(terms[k, STATUS])],
                index=float(terms[k, INDEX]),
                estimate=float(terms[k, ESTIMATE]),
                width=float(terms[k, WIDTH]),
                belief=believed if math.isnan(own) else own,
                primary_user=1.0 - believed,
            )
        )
    label = learner.configured.label
    estimate_is, width_is = learner.words
    text = _text(settings, record, tuple(rows), label, estimate_is)
    return Explanation(
        decision.id, decision.slot, decision.by, label, estimate_is, width_is, tuple(rows), text
    )  # fmt: skip


def _text(settings: Settings, record: Record, rows: tuple[Term, ...], label: str, estimate_is: str) -> str:
    decision = record.decision
    handed = [rows[k] for k in decision.channels]
    words = [_opening(settings, record, label)]
    if decision.by == "incumbent":
        if decision.proposed is None:
            words.append(f"{label}, in its shadow, {_excuse(record)}.")
        else:
            agreed = set(decision.channels) & set(decision.proposed)
            would = f"would have taken {_listed(decision.proposed)}: {len(agreed)} in common"
            words.append(f"{label}, in its shadow, {would}.")
        handed = [rows[k] for k in decision.proposed or ()]
    untried = [term for term in handed if math.isinf(term.index)]
    ranked = sorted((term for term in handed if math.isfinite(term.index)), key=lambda term: -term.index)
    if untried:
        one = len(untried) == 1
        who = "It" if one and len(handed) == 1 else _channels([term.channel for term in untried])
        words.append(f"{who} {'has' if one else 'have'} not been tried yet, and come{'s' * one} first for that.")
    if ranked and any(term.index != ranked[0].index for term in rows):
        best = ranked[0]
        taken = {term.channel for term in handed}  # there may be a thousand channels, and a page asks often
        others = [
            term for term in rows if term.status == AVAILABLE and term.channel not in taken and term.index == term.index
        ]
        rival = max(others, key=lambda term: term.index, default=best)
        last = ranked[-1]
        first = "ranks highest" if best.index >= rival.index else "ranks highest of them"
        words.append(f"Channel {best.channel + 1} {first}, {_reasons(best, estimate_is)}.")
        if rival is not best and rival.index > last.index:
            # Blocks that are not ended yet, and what is tried though it ranks lower.
            words.append(
                f"Channel {rival.channel + 1}, {_reasons(rival, estimate_is)}, is not among them all the same:"
            )
            words.append("this policy does not go by the index alone.")
        elif len(ranked) > 1 and rival is not best:
            words.append(f"The last place went to channel {last.channel + 1}, {_reasons(last, estimate_is)},")
            words.append(f"ahead of channel {rival.channel + 1}, {_reasons(rival, estimate_is)}.")
    for status, why in (
        (UNAVAILABLE, "not available"), (VACATED, "vacated"),
        (WITHHELD, f"withheld: a primary user is more likely than {100 * settings.collision_limit:.3g}%"),
    ):  # fmt: skip
        found = [term.channel for term in rows if term.status == status]
        if found:
            words.append(f"{_channels(found)} {'is' if len(found) == 1 else 'are'} {why}.")
    return " ".join(words)


def _opening(settings: Settings, record: Record, label: str) -> str:
    decision = record.decision
    opening = f"Slot {decision.slot}: {_listed(decision.channels)} of {settings.channels}"
    if len(decision.channels) < record.ask.users:
        opening += f" ({record.ask.users} were asked for)"
    if decision.by == "incumbent":
        return f"{opening}, as the incumbent has it."
    if decision.by == "fallback":
        return f"{opening}, chosen by the fallback {label}, because {settings.case.label} {_excuse(record)}."
    return f"{opening}, chosen by {label}."


def _excuse(record: Record) -> str:
    """Why the policy had no say."""
    return f"is out of service since {record.broken}" if record.broken else "did not answer before its deadline"


def _reasons(term: Term, estimate_is: str) -> str:
    reasons = [f"index {term.index:.3g}" if math.isfinite(term.index) else "not tried yet"]
    if math.isfinite(term.belief):
        reasons.append(f"free with {term.belief:.0%}")
    if math.isfinite(term.estimate):
        small = abs(term.estimate) < 0.0005
        reasons.append(f"{estimate_is} {'0.000' if small else format(term.estimate, '.3g')}")
    return f"{reasons[0]} ({', '.join(reasons[1:])})" if len(reasons) > 1 else reasons[0]


def _channels(channels: list[int]) -> str:
    return f"Channel{'s' * (len(channels) != 1)} {_numbers(channels)}"


def _listed(channels: tuple[int, ...]) -> str:
    return f"channel{'s' * (len(channels) != 1)} {_numbers(channels)}" if channels else "no channel"


def _numbers(channels: Any) -> str:
    """Counted from 1; of many only the first."""
    shown = ", ".join(str(k + 1) for k in list(channels)[:20])
    return shown if len(channels) <= 20 else f"{shown} and {len(channels) - 20} more"
