"""The data of the watch page that is not part of the allocator's status."""

import time
from typing import Any

import numpy as np
import pytest

from idleband.allocator.events import Decision, Receipt, Report
from idleband.service import live_view
from idleband.service.live_view import BUSY, MAX_POINTS, PAID, PENDING, PERTURBED, STRIP_SLOTS, LiveView
from idleband.service.messages import Reference


@pytest.fixture
def view() -> LiveView:
    return LiveView(np.tile([False, True], (4, 1)), 1.0, 2 * STRIP_SLOTS)


def decide(view: LiveView, slot: int, channels: tuple[int, ...] = (0, 1)) -> Decision:
    decision = Decision(f"r{slot}", channels, slot, "policy", channels)
    view.decided(decision)
    return decision


def report(
    view: LiveView, decision: Decision, rewards: Any, reference: Reference | None = None, states: Any = None
) -> None:
    view.reported(feedback(decision.request_id, rewards, states), Receipt(decision.channels), reference)


def feedback(request_id: Any, rewards: Any, states: Any = None) -> Report:
    """Return a report; None: no feedback for this channel."""
    unknown = [None] * len(rewards)
    return Report(request_id, *(np.array(values, np.float64) for values in (rewards, states or unknown, unknown)))


def reference(static: float = 2.0, contextual: float = 1.5, suboptimal: tuple[int, int] = (1, 2)) -> Reference:
    return Reference(
        static=static, contextual=contextual, suboptimal_static=suboptimal[0], suboptimal_contextual=suboptimal[1]
    )


def test_strip_holds_the_latest_slots(view: LiveView) -> None:
    for slot in range(1, STRIP_SLOTS + 31):
        decide(view, slot)
    strip = view.view()["strip"]
    assert [one["slot"] for one in strip] == list(range(31, STRIP_SLOTS + 31))
    assert strip[0] == {"request_id": "r31", "slot": 31, "outcomes": [[0, PENDING], [1, PENDING]]}


def test_outcomes_of_channels_with_reported_states(view: LiveView) -> None:
    decision = decide(view, 1, (0, 1, 2, 3))
    report(view, decision, [1.0, 0.1, 0.1, 1.0], states=[1, 1, 0, 0])
    # A good state with a low reward was perturbed.
    assert view.view()["strip"][0]["outcomes"] == [[0, PAID], [1, PERTURBED], [2, BUSY], [3, PAID]]


def test_low_reward_without_a_state_counts_as_busy(view: LiveView) -> None:
    report(view, decide(view, 1), [1.0, 0.1])
    assert view.view()["strip"][0]["outcomes"] == [[0, PAID], [1, BUSY]]


def test_report_for_a_slot_that_left_the_strip_counts(view: LiveView) -> None:
    first = decide(view, 1)
    for slot in range(2, STRIP_SLOTS + 2):
        decide(view, slot)
    report(view, first, [1.0, 0.1])
    assert view.view()["plays"] == 2
    assert all(outcome == PENDING for one in view.view()["strip"] for _, outcome in one["outcomes"])


def test_repeated_report_changes_nothing(view: LiveView) -> None:
    decision = decide(view, 1)
    report(view, decision, [1.0, 0.1], reference())
    before, changes = view.view(), view.changes
    repeated = feedback("r1", [1.0, None])
    view.reported(repeated, Receipt((), (0,)), reference())
    view.reported(repeated, Receipt((), late=True), reference())
    assert (view.changes, {**view.view(), "rate": before["rate"]}) == (changes, before)


def test_curves_are_mean_rewards_per_slot(view: LiveView) -> None:
    for slot, reward in ((1, 1.0), (2, 0.1), (3, 0.1)):
        report(view, decide(view, slot), [reward, 1.0], reference(static=2.0, contextual=slot))
    assert view.view()["curves"] == pytest.approx(
        np.array([[1, 2.0, 2.0, 1.0], [2, (2.0 + 1.1) / 2, 2.0, 1.5], [3, (2.0 + 1.1 + 1.1) / 3, 2.0, 2.0]])
    )
    assert (view.view()["plays"], view.view()["suboptimal"]) == (6, [3.0, 6.0])


def test_curves_are_thinned_below_the_maximum_number_of_points(view: LiveView) -> None:
    for slot in range(1, 5 * MAX_POINTS):
        report(view, decide(view, slot), [float(slot % 2), 0.0], reference())
        assert len(view.view()["curves"]) < MAX_POINTS
    at = [point[0] for point in view.view()["curves"]]
    strides = set(np.diff(at).tolist())
    assert strides == {8}  # halved three times: 240, 480, 960 slots
    assert at[-1] == (5 * MAX_POINTS - 1) // 8 * 8
    assert view.view()["curves"][-1][1] == pytest.approx(0.5)


def test_without_references_only_the_reward_is_shown(view: LiveView) -> None:
    report(view, decide(view, 1), [1.0, 1.0])
    report(view, decide(view, 2), [1.0, 1.0])
    assert view.view()["suboptimal"] is None
    assert view.view()["curves"] == [[1, 2.0], [2, 2.0]]


def test_slots_without_references_are_left_out_once_references_are_known(view: LiveView) -> None:
    report(view, decide(view, 1), [0.1, 0.1])
    report(view, decide(view, 2), [1.0, 1.0], reference())
    report(view, decide(view, 3), [0.1, 0.1])
    assert view.view()["curves"] == [[1, 2.0, 2.0, 1.5]]
    assert (view.view()["plays"], view.view()["suboptimal"]) == (2, [1.0, 2.0])


@pytest.mark.parametrize("later", [STRIP_SLOTS // 2, STRIP_SLOTS + 1])
def test_partial_reports_far_apart_complete_one_slot(view: LiveView, later: int) -> None:
    """The slot may leave the strip between the reports."""
    decide(view, 1)
    view.reported(feedback("r1", [1.0, None]), Receipt((0,)), reference())
    for slot in range(2, later):
        decide(view, slot)
    view.reported(feedback("r1", [None, 0.1]), Receipt((1,)), reference())
    assert view.view()["curves"] == [[1, pytest.approx(1.1), 2.0, 1.5]]


def test_slots_are_dropped_after_patience(view: LiveView) -> None:
    first = decide(view, 1)
    for slot in range(2, 3 * STRIP_SLOTS):
        decide(view, slot)
    assert len(view._open) == 2 * STRIP_SLOTS
    report(view, first, [1.0, 1.0])  # late for the allocator, too
    assert view.view()["plays"] == 0


def test_partial_reports_count_once_the_slot_is_complete(view: LiveView) -> None:
    decision = decide(view, 1)
    for k, rewards in enumerate(([1.0, None], [None, 0.1])):
        view.reported(feedback("r1", rewards), Receipt((k,)), reference())
        assert len(view.view()["curves"]) == k  # counted when complete
    assert view.view()["curves"] == [[1, pytest.approx(1.1), 2.0, 1.5]]
    assert (view.view()["plays"], view.view()["suboptimal"]) == (2, [1.0, 2.0])
    assert decision.channels == (0, 1)


def test_rate_counts_decisions_in_the_window(view: LiveView, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    for slot in range(1, 11):
        decide(view, slot)
    assert view.view()["rate"] == 2.0
    now += live_view.RATE_WINDOW + 1
    assert view.view()["rate"] == 0.0
    decide(view, 11)
    assert view.view()["rate"] == pytest.approx(0.2)
