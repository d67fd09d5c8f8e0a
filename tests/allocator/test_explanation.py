"""Explanations: the numbers are recomputed from the state of the policy, and the sentences agree with them."""

import json
import math
import re
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

import idleband as ib
from tests.allocator.helpers import arrays, contexts, plain

K = 4


def station(policy: str = "mp-ucb", **more: Any) -> ib.Allocator:
    return ib.Allocator(policy, **{"channels": K, "users": 2, "dimension": 2, **more})


def after_reports(policy: str, slots: int = 30, **more: Any) -> ib.Allocator:
    allocator, rng = station(policy, **more), np.random.default_rng(0)
    for _ in range(slots):
        decision = allocator.decide(contexts(rng, allocator), available=rng.random(K) < 0.7)
        allocator.report(decision.request_id, rng.choice([0.1, 1.0], len(decision.channels)))
    return allocator


# --- numbers ---------------------------------------------------------------------------------------------------------


def test_explained_numbers_of_mp_ucb_match_its_state() -> None:
    allocator = after_reports("mp-ucb", L=0.7)
    state = arrays(allocator)
    explained = allocator.explain(allocator.decide(None).request_id)
    assert (explained.policy, explained.slot, explained.by) == ("mp-ucb L=0.7", 31, "policy")
    for k, term in enumerate(explained.channels):
        plays, mean = state["policy.state.plays"][k], state["policy.state.total"][k] / state["policy.state.plays"][k]
        assert term.estimate == mean
        assert term.width == pytest.approx(math.sqrt(0.7 * math.log(31) / plays))
        assert term.index == pytest.approx(mean + term.width)
    best = sorted(explained.channels, key=lambda term: -term.index)[:2]
    assert {term.channel for term in best} == {term.channel for term in explained.channels if term.assigned}


def test_explained_numbers_of_mp_lucb_match_its_state() -> None:
    allocator = after_reports("mp-lucb", beta=0.5)
    state = arrays(allocator)
    x = np.random.default_rng(1).random((K, 2))
    explained = allocator.explain(allocator.decide(x).request_id)
    assert (explained.estimate_meaning, explained.width_meaning) == allocator._core.supervisor.learner.meanings
    assert explained.estimate_meaning
    for k, term in enumerate(explained.channels):
        A_inv, theta = state["policy.state.A_inv"][k], state["policy.state.theta"][k]
        mean = state["policy.state.estimates.total_h"][k] / state["policy.state.estimates.plays"][k]
        assert term.estimate == pytest.approx(theta @ x[k])
        assert term.width == pytest.approx(0.5 * math.sqrt(x[k] @ A_inv @ x[k]))
        assert term.index == pytest.approx(mean - term.estimate + term.width)


def test_explained_numbers_of_mp_belief_lucb_match_its_state() -> None:
    """The policy's belief comes from a drawn chain; the allocator's estimate of a primary user is shown beside it."""
    allocator = after_reports("mp-belief-lucb", redraw=1)
    state = arrays(allocator)
    x = np.random.default_rng(1).random((K, 2))
    explained = allocator.explain(allocator.decide(x).request_id)
    after = arrays(allocator)
    for k, term in enumerate(explained.channels):
        seen = np.append(x[k], 1.0)
        A_inv, theta = state["policy.state.A_inv"][k], state["policy.state.theta"][k]
        assert term.estimate == pytest.approx(expit(theta @ seen))
        assert term.width == pytest.approx(math.sqrt(seen @ A_inv @ seen))
        assert term.belief == pytest.approx(after["policy.state.chains.belief"][k, 1])
        assert term.primary_user_probability == pytest.approx(1.0 - after["occupancy.belief"][k])
        assert term.belief != 1.0 - term.primary_user_probability


@pytest.mark.parametrize("policy", ["mp-ucb", "mp-random"])
def test_a_policy_without_belief_is_explained_with_the_occupancy_belief(policy: str) -> None:
    allocator = after_reports(policy)
    for term in allocator.explain(allocator.decide(None).request_id).channels:
        assert term.belief == pytest.approx(1.0 - term.primary_user_probability)
        if policy == "mp-random":
            assert math.isnan(term.estimate)


def test_an_explanation_does_not_change_with_later_decisions() -> None:
    allocator = station()
    decision = allocator.decide(None)
    before = allocator.explain(decision.request_id).to_dict()
    allocator.report(decision.request_id, [1.0, 0.1])
    for _ in range(10):
        allocator.report(allocator.decide(None).request_id, [1.0, 1.0])
    assert allocator.explain(decision.request_id).to_dict() == before


@pytest.mark.parametrize("policy", ["mp-ucb", "mp-lucb-rca", "rca-m", "mp-random", "mp-belief-lucb"])
def test_explanations_convert_to_json(policy: str) -> None:
    """JSON has neither infinity nor nan: untried channels have an index of None."""
    allocator = station(policy)
    for _ in range(5):
        decision = allocator.decide(np.zeros((K, 2)), available=[True, True, True, False])
        data = json.loads(json.dumps(allocator.explain(decision.request_id).to_dict(), allow_nan=False))
        assert [term["channel"] for term in data["channels"]] == list(range(K))
        assert {term["channel"] for term in data["channels"] if term["assigned"]} == set(decision.channels)
        assert data["channels"][3]["status"] == "unavailable"
        assert data["text"] == str(allocator.explain(decision.request_id))
        allocator.report(decision.request_id, [1.0, 0.1])


# --- sentences -------------------------------------------------------------------------------------------------------


def words(allocator: ib.Allocator, *question: Any, **more: Any) -> str:
    return str(allocator.explain(allocator.decide(*(question or (None,)), **more).request_id))


def test_sentence_if_all_indices_are_equal() -> None:
    """Before the first report MP-LUCB expects the same of equal contexts."""
    allocator = ib.Allocator("mp-lucb", channels=3, users=2, dimension=1)
    assert words(allocator, [[0.5]] * 3) == (
        "Slot 1: channels 0, 1 of 3 were selected by mp-lucb. All channels have the index 0.5; those with the lowest"
        " numbers come first."
    )


def test_sentences_about_untried_channels() -> None:
    assert words(station()) == (
        "Slot 1: channels 0, 1 of 4 were selected by mp-ucb. Channels 0, 1 have not been tried yet, so they come first."
    )
    allocator = station()
    allocator.report(allocator.decide(None).request_id, [1.0, 0.1])
    allocator.report(allocator.decide(None, available=[0, 1, 1, 0]).request_id, [0.1, 0.1])
    assert words(allocator) == (
        "Slot 3: channels 0, 3 of 4 were selected by mp-ucb. Channel 3 has not been tried yet, so it comes first."
        " Channel 0 ranks highest, with index 2.28 (idle with probability 50%, mean reward 1)."
    )


def test_sentences_about_the_ranking() -> None:
    """The best and the last of the selected channels, and the best of the others."""
    allocator = station(users=2, rewards=(0.0, 1.0))
    for k, reward in enumerate((1.0, 0.5, 0.25, 0.0)):
        allocator.decide(None, 1, [i == k for i in range(K)])
        allocator.report(allocator.slot, [reward])
    width = math.sqrt(1.5 * math.log(5))
    found = words(allocator)
    assert f"Channel 0 ranks highest, with index {1 + width:.3g} (idle with probability " in found
    assert f"The last place went to channel 1, with index {0.5 + width:.3g} (" in found
    assert f"ahead of channel 2, with index {0.25 + width:.3g} (" in found
    assert "mean reward 0.25)." in found


NOT_ALONE = "was not selected: this policy does not go by the index alone."


@pytest.mark.parametrize(
    ("picked", "says"),
    [
        ((2, 0), f"Channel 0 ranks highest of these, with index 1. Channel 1, with index 3, {NOT_ALONE}"),
        ((1, 2), f"Channel 1 ranks highest, with index 3. Channel 3, with index 2, {NOT_ALONE}"),
        (
            (3, 1),
            "The last place went to channel 3, with index 2, ahead of channel 0, with index 1.",
        ),
    ],
)
def test_sentences_about_a_policy_that_does_not_rank_by_the_index(picked: tuple[int, int], says: str) -> None:
    def failing(slot: Any, picks: Any) -> int:
        slot.indices[:] = [1.0, 3.0, 0.5, 2.0]
        picks[:2] = picked
        return 2

    plain(failing)
    allocator = station("plain")
    text = str(allocator.explain(allocator.decide(np.zeros((K, 2))).request_id))
    assert re.sub(r" \(idle with probability 50%\)", "", text).endswith(says), text


@pytest.mark.parametrize("more", [{"users": 4}, {"available": [True, False, True, False]}])
def test_sentences_if_all_available_channels_are_selected(more: dict[str, Any]) -> None:
    """No other channel remains for a comparison."""
    allocator = after_reports("mp-ucb", users=4)
    text = str(allocator.explain(allocator.decide(None, **more).request_id))
    assert "ranks highest, with index" in text
    assert "was not selected" not in text
    assert "The last place" not in text


def test_sentences_about_unavailable_vacated_and_withheld_channels() -> None:
    allocator = station(users=3, collision_limit=0.4)
    allocator.vacate([1])
    text = words(allocator, None, None, [True, True, False, True], [1, 1, 1, 0])
    assert text == (
        "Slot 1: channel 0 of 4 (3 requested) was selected by mp-ucb."
        " Channel 0 has not been tried yet, so it comes first."
        " Channel 2 is not available. Channel 1 is vacated."
        " Channel 3 is withheld, because a primary user is more likely than 40%."
    )
    statuses = [term.status for term in allocator.explain(1).channels]
    assert statuses == ["available", "vacated", "unavailable", "withheld"]
    assert words(allocator, None, 2, [False] * 4) == (
        "Slot 2: no channel of 4 (2 requested) was selected by mp-ucb. Channels 0, 1, 2, 3 are not available."
    )
    assert words(allocator, None, 0, None, [1] * 4).startswith("Slot 3: no channel of 4 was selected by mp-ucb.")


def test_sentences_about_an_incumbent() -> None:
    assert words(station(), incumbent=[1, 3]) == (
        "Slot 1: channels 1, 3 of 4 were assigned by the incumbent. mp-ucb, in shadow mode, would have selected"
        " channels 0, 1: 1 in common. Channels 0, 1 have not been tried yet, so they come first."
    )
    assert "assigned by the incumbent. mp-ucb, in shadow mode, would have selected" in words(
        station(incumbent="mp-random")
    )


def test_a_fallback_decision_is_explained_with_the_numbers_of_the_fallback() -> None:
    allocator = station("mp-lucb", fallback="mp-ucb")
    allocator._core.supervisor.learner.state.theta[0] = np.nan
    explained = allocator.explain(allocator.decide(np.zeros((K, 2))).request_id)
    assert (explained.by, explained.policy, explained.estimate_meaning) == ("fallback", "mp-ucb", "mean reward")
    assert str(explained).startswith(
        "Slot 1: channels 0, 1 of 4 were selected by the fallback mp-ucb, because mp-lucb is out of service since slot"
        " 1: an index is nan."
    )
    assert all(term.index == math.inf for term in explained.channels)


def test_sentences_list_at_most_twenty_channels() -> None:
    text = words(ib.Allocator("mp-ucb", channels=50, users=30, dimension=1))
    assert text.startswith(f"Slot 1: channels {', '.join(str(k) for k in range(20))} and 10 more of 50 were selected")
