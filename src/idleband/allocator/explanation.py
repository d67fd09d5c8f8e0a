"""Explanations of decisions: the numbers of each channel, and sentences made from them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from idleband.allocator.events import FALLBACK, INCUMBENT, DecisionRecord, RequestId
from idleband.allocator.settings import Settings
from idleband.allocator.slot_kernels import INDEX, OCCUPANCY_BELIEF, STATUS
from idleband.channels import channel_label
from idleband.policies.protocol import BELIEF, ESTIMATE, WIDTH

if TYPE_CHECKING:
    from idleband.allocator.learner import Learner

STATUSES = AVAILABLE, UNAVAILABLE, VACATED, WITHHELD = "available", "unavailable", "vacated", "withheld"
MAX_LISTED = 20  # channels that a sentence lists


@dataclass(frozen=True)
class ChannelTerms:
    """The numbers of one channel in a decision; nan where the policy has no such number.

    Attributes
    ----------
    channel : int
        Index of the channel, from 0.
    name : str or None
        Name of the channel.
    assigned : bool
        Whether the channel was assigned.
    status : str
        "available", "unavailable", "vacated", or "withheld" because a primary user is too likely.
    index : float
        Number by which the policy ranks channels.
    estimate, width : float
        The two parts of the index; `Explanation.estimate_meaning` and `width_meaning` describe them.
    belief : float
        Probability that the channel is idle: the policy's belief, or that of the allocator if the policy has none.
    primary_user_probability : float
        Probability of a primary user as the allocator estimates it; the collision limit applies to it.
    """

    channel: int
    name: str | None
    assigned: bool
    status: str
    index: float
    estimate: float
    width: float
    belief: float
    primary_user_probability: float


@dataclass(frozen=True)
class Explanation:
    """A decision explained; `print` shows the sentences.

    Attributes
    ----------
    request_id : str or int
        Name of the decision.
    slot : int
        Slot of the decision.
    by : str
        What decided: "policy", "incumbent" or "fallback".
    policy : str
        The policy that the numbers belong to.
    estimate_meaning, width_meaning : str
        What the estimate and the width are in this policy.
    channels : tuple of ChannelTerms
        The numbers of each channel.
    text : str
        The explanation in sentences.

    Examples
    --------
    >>> from idleband import Allocator
    >>> allocator = Allocator("mp-ucb", channels=3, users=1)
    >>> print(allocator.explain(allocator.decide().request_id))
    Slot 1: channel 0 of 3 was selected by mp-ucb. Channel 0 has not been tried yet, so it comes first.
    """

    request_id: RequestId
    slot: int
    by: str
    policy: str
    estimate_meaning: str
    width_meaning: str
    channels: tuple[ChannelTerms, ...]
    text: str

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, with None in place of numbers that are not finite."""

        def plain(value: Any) -> Any:
            return None if isinstance(value, float) and not math.isfinite(value) else value

        channels = [{key: plain(value) for key, value in vars(terms).items()} for terms in self.channels]
        return {**vars(self), "channels": channels}


def explanation(settings: Settings, learner: "Learner", record: DecisionRecord) -> Explanation:
    """Explain a decision with the numbers of `learner`, which is the policy or the fallback."""
    decision = record.decision
    assigned = set(decision.channels)
    rows = tuple(_channel_terms(settings, record, k, k in assigned) for k in range(settings.channels))
    label = learner.configured.label
    estimate, width = learner.meanings
    text = _Sentences(settings, record, rows, label, estimate).text()
    return Explanation(decision.request_id, decision.slot, decision.by, label, estimate, width, rows, text)


def _channel_terms(settings: Settings, record: DecisionRecord, k: int, assigned: bool) -> ChannelTerms:
    terms = record.terms[k]
    policy_belief, belief = float(terms[BELIEF]), float(terms[OCCUPANCY_BELIEF])
    return ChannelTerms(
        channel=k,
        name=settings.channel_names[k] if settings.channel_names else None,
        assigned=assigned,
        status=STATUSES[int(terms[STATUS])],
        index=float(terms[INDEX]),
        estimate=float(terms[ESTIMATE]),
        width=float(terms[WIDTH]),
        belief=belief if math.isnan(policy_belief) else policy_belief,
        primary_user_probability=1.0 - belief,
    )


class _Sentences:
    """The sentences about one decision."""

    def __init__(
        self, settings: Settings, record: DecisionRecord, rows: tuple[ChannelTerms, ...], label: str, estimate: str
    ) -> None:
        self._settings, self._record, self._rows = settings, record, rows
        self._label, self._estimate = label, estimate

    def text(self) -> str:
        decision = self._record.decision
        selected = decision.channels
        sentences = [self._opening()]
        if decision.by == INCUMBENT:
            sentences.append(self._shadow())
            selected = decision.proposed or ()
        sentences += self._ranking([self._rows[k] for k in selected])
        sentences += self._exclusions()
        return " ".join(sentences)

    def _opening(self) -> str:
        settings, record, decision = self._settings, self._record, self._record.decision
        opening = f"Slot {decision.slot}: {self._listed(decision.channels)} of {settings.channels}"
        if len(decision.channels) < record.request.users:
            opening += f" ({record.request.users} requested)"
        opening += " were" if len(decision.channels) > 1 else " was"
        if decision.by == INCUMBENT:
            return f"{opening} assigned by the incumbent."
        if decision.by == FALLBACK:
            return (
                f"{opening} selected by the fallback {self._label}, because {settings.configured.label}"
                f" {self._failure()}."
            )
        return f"{opening} selected by {self._label}."

    def _shadow(self) -> str:
        decision = self._record.decision
        if decision.proposed is None:
            return f"{self._label}, in shadow mode, {self._failure()}."
        agreed = len(set(decision.channels) & set(decision.proposed))
        return (
            f"{self._label}, in shadow mode, would have selected {self._listed(decision.proposed)}: {agreed} in common."
        )

    def _failure(self) -> str:
        failure = self._record.policy_failure
        return f"is out of service since {failure}" if failure else "missed its deadline"

    def _ranking(self, selected: list[ChannelTerms]) -> list[str]:
        """Compare the selected channels with the best of the others."""
        sentences = []
        untried = [terms.channel for terms in selected if math.isinf(terms.index)]
        ranked = sorted((terms for terms in selected if math.isfinite(terms.index)), key=lambda terms: -terms.index)
        if untried:
            have, they_come = ("has", "it comes") if len(untried) == 1 else ("have", "they come")
            channels = _capitalized(self._listed(untried))
            sentences.append(f"{channels} {have} not been tried yet, so {they_come} first.")
        if not ranked:
            return sentences
        if all(terms.index == ranked[0].index for terms in self._rows):
            if len(ranked) < len(self._rows):
                sentences.append(
                    f"All channels have the index {ranked[0].index:.3g}; those with the lowest numbers come first."
                )
            return sentences
        chosen = {terms.channel for terms in selected}  # a set, because there may be thousands of channels
        others = [
            terms
            for terms in self._rows
            if terms.status == AVAILABLE and terms.channel not in chosen and not math.isnan(terms.index)
        ]
        best, last = ranked[0], ranked[-1]
        rival = max(others, key=lambda terms: terms.index, default=best)
        among = "" if best.index >= rival.index else " of these"
        sentences.append(f"{_capitalized(self._name(best))} ranks highest{among}, {self._reasons(best)}.")
        if rival is not best and rival.index > last.index:  # a running block, or exploration
            sentences.append(
                f"{_capitalized(self._name(rival))}, {self._reasons(rival)}, was not selected: this policy does not go"
                " by the index alone."
            )
        elif len(ranked) > 1 and rival is not best:
            sentences.append(
                f"The last place went to {self._name(last)}, {self._reasons(last)}, ahead of {self._name(rival)},"
                f" {self._reasons(rival)}."
            )
        return sentences

    def _reasons(self, terms: ChannelTerms) -> str:
        reasons = [f"with index {terms.index:.3g}" if math.isfinite(terms.index) else "not tried yet"]
        if math.isfinite(terms.belief):
            reasons.append(f"idle with probability {terms.belief:.0%}")
        if math.isfinite(terms.estimate):
            small = abs(terms.estimate) < 0.0005
            reasons.append(f"{self._estimate} {'0.000' if small else format(terms.estimate, '.3g')}")
        return f"{reasons[0]} ({', '.join(reasons[1:])})" if len(reasons) > 1 else reasons[0]

    def _exclusions(self) -> list[str]:
        limit = f"withheld, because a primary user is more likely than {100 * self._settings.collision_limit:.3g}%"
        sentences = []
        for status, why in ((UNAVAILABLE, "not available"), (VACATED, "vacated"), (WITHHELD, limit)):
            found = [terms.channel for terms in self._rows if terms.status == status]
            if found:
                sentences.append(f"{_capitalized(self._listed(found))} {'is' if len(found) == 1 else 'are'} {why}.")
        return sentences

    def _name(self, terms: ChannelTerms) -> str:
        return self._listed([terms.channel])

    def _listed(self, channels: Sequence[int]) -> str:
        """Return "channels 0, 2", with names where there are names."""
        if not channels:
            return "no channel"
        labels = [channel_label(k, self._settings.channel_names) for k in channels[:MAX_LISTED]]
        more = f" and {len(channels) - MAX_LISTED} more" if len(channels) > MAX_LISTED else ""
        return f"channel{'s' * (len(channels) != 1)} {', '.join(labels)}{more}"


def _capitalized(text: str) -> str:
    return text[0].upper() + text[1:]
