"""What the page is told beside an allocator's state."""

from typing import Any

import numpy as np
import pytest

from idleband.allocator.events import Decision, Receipt
from idleband.service import live_view as feed_module
from idleband.service.live_view import BUSY, FREE, POINTS, SPOILT, STRIP, WAITING, LiveView
from idleband.service.messages import Feedback, Outcome, Reference


@pytest.fixture
def feed() -> LiveView:
    return LiveView(np.tile([False, True], (4, 1)), 1.0, 2 * STRIP)


def decide(feed: LiveView, slot: int, channels: tuple[int, ...] = (0, 1)) -> Decision:
    decision = Decision(f"r{slot}", channels, slot, "policy", channels)
    feed.decided(decision)
    return decision


def report(
    feed: LiveView, decision: Decision, rewards: Any, known: Reference | None = None, states: Any = None
) -> None:
    outcomes = [
        Outcome(channel=k, reward=r, state=None if states is None else s)
        for k, r, s in zip(decision.channels, rewards, states or rewards, strict=True)
    ]
    said = Feedback(request=str(decision.request_id), outcomes=outcomes, reference=known)
    feed.reported(said, Receipt(decision.channels))


def reference(static: float = 2.0, contextual: float = 1.5, suboptimal: tuple[int, int] = (1, 2)) -> Reference:
    return Reference(
        static=static, contextual=contextual, suboptimal_static=suboptimal[0], suboptimal_contextual=suboptimal[1]
    )


def test_the_strip_has_the_last_slots(feed: LiveView) -> None:
    for slot in range(1, STRIP + 31):
        decide(feed, slot)
    strip = feed.view()["strip"]
    assert [one["slot"] for one in strip] == list(range(31, STRIP + 31))
    assert strip[0] == {"request": "r31", "slot": 31, "outcomes": [[0, WAITING], [1, WAITING]]}


def test_what_became_of_channels(feed: LiveView) -> None:
    decision = decide(feed, 1, (0, 1, 2, 3))
    report(feed, decision, [1.0, 0.1, 0.1, 1.0], states=[1, 1, 0, 0])
    # A good state that paid less than a free channel pays: it was perturbed.
    assert feed.view()["strip"][0]["outcomes"] == [[0, FREE], [1, SPOILT], [2, BUSY], [3, FREE]]


def test_without_states_what_paid_less_was_busy(feed: LiveView) -> None:
    report(feed, decide(feed, 1), [1.0, 0.1])
    assert feed.view()["strip"][0]["outcomes"] == [[0, FREE], [1, BUSY]]


def test_feedback_for_a_slot_that_left_the_strip_still_counts(feed: LiveView) -> None:
    first = decide(feed, 1)
    for slot in range(2, STRIP + 2):
        decide(feed, slot)
    report(feed, first, [1.0, 0.1])
    assert feed.view()["picks"] == 2
    assert all(what == WAITING for one in feed.view()["strip"] for _, what in one["outcomes"])


def test_repeated_feedback_changes_nothing(feed: LiveView) -> None:
    decision = decide(feed, 1)
    report(feed, decision, [1.0, 0.1], reference())
    before, changes = feed.view(), feed.changes
    said = Feedback(request="r1", outcomes=[Outcome(channel=0, reward=1.0)], reference=reference())
    feed.reported(said, Receipt((), (0,)))
    feed.reported(said, Receipt((), late=True))
    assert (feed.changes, {**feed.view(), "rate": before["rate"]}) == (changes, before)


def test_curves_are_means_a_slot(feed: LiveView) -> None:
    for slot, reward in ((1, 1.0), (2, 0.1), (3, 0.1)):
        report(feed, decide(feed, slot), [reward, 1.0], reference(static=2.0, contextual=slot))
    assert feed.view()["curves"] == pytest.approx(
        np.array([[1, 2.0, 2.0, 1.0], [2, (2.0 + 1.1) / 2, 2.0, 1.5], [3, (2.0 + 1.1 + 1.1) / 3, 2.0, 2.0]])
    )
    assert (feed.view()["picks"], feed.view()["suboptimal"]) == (6, [3.0, 6.0])


def test_curves_are_thinned_and_never_too_long(feed: LiveView) -> None:
    for slot in range(1, 5 * POINTS):
        report(feed, decide(feed, slot), [float(slot % 2), 0.0], reference())
        assert len(feed.view()["curves"]) < POINTS
    at = [point[0] for point in feed.view()["curves"]]
    strides = set(np.diff(at).tolist())
    assert strides == {8}  # halved three times: 240, 480, 960 slots
    assert at[-1] == (5 * POINTS - 1) // 8 * 8
    assert feed.view()["curves"][-1][1] == pytest.approx(0.5)


def test_where_nobody_knows_what_was_possible_only_the_reward_is_shown(feed: LiveView) -> None:
    report(feed, decide(feed, 1), [1.0, 1.0])
    report(feed, decide(feed, 2), [1.0, 1.0])
    assert feed.view()["suboptimal"] is None
    assert feed.view()["curves"] == [[1, 2.0], [2, 2.0]]


def test_where_it_is_known_of_some_slots_only_those_are_compared(feed: LiveView) -> None:
    """What was earned in others has nothing beside it."""
    report(feed, decide(feed, 1), [0.1, 0.1])
    report(feed, decide(feed, 2), [1.0, 1.0], reference())
    report(feed, decide(feed, 3), [0.1, 0.1])
    assert feed.view()["curves"] == [[1, 2.0, 2.0, 1.5]]
    assert (feed.view()["picks"], feed.view()["suboptimal"]) == (2, [1.0, 2.0])


@pytest.mark.parametrize("later", [STRIP // 2, STRIP + 1])
def test_parts_that_come_late_are_of_one_slot(feed: LiveView, later: int) -> None:
    """Also where it leaves the strip between them."""
    parts = [
        Feedback(request="r1", outcomes=[Outcome(channel=k, reward=r)], reference=reference())
        for k, r in ((0, 1.0), (1, 0.1))
    ]
    decide(feed, 1)
    feed.reported(parts[0], Receipt((0,)))
    for slot in range(2, later):
        decide(feed, slot)
    feed.reported(parts[1], Receipt((1,)))
    assert feed.view()["curves"] == [[1, pytest.approx(1.1), 2.0, 1.5]]


def test_what_is_never_reported_is_forgotten(feed: LiveView) -> None:
    first = decide(feed, 1)
    for slot in range(2, 3 * STRIP):
        decide(feed, slot)
    assert len(feed._open) == 2 * STRIP
    report(feed, first, [1.0, 1.0])  # the allocator takes it for late, too
    assert feed.view()["picks"] == 0


def test_a_slot_that_is_reported_in_parts_is_one_slot(feed: LiveView) -> None:
    decision = decide(feed, 1)
    for k, reward in ((0, 1.0), (1, 0.1)):
        said = Feedback(request="r1", outcomes=[Outcome(channel=k, reward=reward)], reference=reference())
        feed.reported(said, Receipt((k,)))
        assert len(feed.view()["curves"]) == k  # when all of it is known
    assert feed.view()["curves"] == [[1, pytest.approx(1.1), 2.0, 1.5]]
    assert (feed.view()["picks"], feed.view()["suboptimal"]) == (2, [1.0, 2.0])
    assert decision.channels == (0, 1)


def test_decisions_a_second(feed: LiveView, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(feed_module.time, "monotonic", lambda: now)
    for slot in range(1, 11):
        decide(feed, slot)
    assert feed.view()["rate"] == 2.0
    now += feed_module.SECONDS + 1
    assert feed.view()["rate"] == 0.0
    decide(feed, 11)
    assert feed.view()["rate"] == pytest.approx(0.2)
