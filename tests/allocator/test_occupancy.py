"""Occupancy: beliefs and transition probabilities, compared with the chains that generate the states."""

import math
from typing import Any

import numpy as np
import pytest

import idleband as ib
from idleband.allocator.occupancy import REFIT_FACTOR
from tests.allocator.helpers import arrays

P01, P10 = 0.1, 0.25


def station(K: int = 1, **more: Any) -> ib.Allocator:
    return ib.Allocator("mp-random", **{"channels": K, "users": K, "dimension": 1, **more})


def chain(slots: int, seed: int, p01: float = P01, p10: float = P10) -> list[int]:
    rng = np.random.default_rng(seed)
    states = [int(rng.random() < p01 / (p01 + p10))]
    while len(states) < slots:
        states.append(int(rng.random() < p01) if states[-1] == 0 else int(rng.random() >= p10))
    return states


def ahead(p01: float, p10: float, state: float, steps: int) -> float:
    """Return the probability of state 1 after some steps of the chain, computed step by step."""
    for _ in range(steps):
        state = state * (1.0 - p10) + (1.0 - state) * p01
    return state


# --- beliefs ---------------------------------------------------------------------------------------------------------


def test_a_late_observation_is_carried_forward_to_the_present_slot() -> None:
    """An observation of slot 5 that is reported in slot 40 has the same effect as one that was made in time."""
    late, sensed = station(), station()
    for slot in range(1, 41):
        decision = late.decide(None, request_id=f"r{slot}")
        sensed.decide(None, states=[1] if slot == 5 else None)
        if slot == 5:
            late.vacate([0])
    assert decision.slot == 40
    late.report("r5", [1.0], [1])
    before, after = late.status()["channel"][0], sensed.status()["channel"][0]
    assert before["belief"] == pytest.approx(after["belief"], abs=1e-12)
    assert before["belief"] == pytest.approx(ahead(0.5, 0.5, 1.0, 35))


def test_an_uncertain_observation_is_corrected_by_the_error_probabilities() -> None:
    """Before the chain is estimated, idle and busy are equally likely in the long run and states have no memory."""
    missed, false_alarm = 0.3, 0.1
    allocator = station(2, sensing_errors={"missed": missed, "false_alarm": false_alarm})
    allocator.decide(None, 0, states=[1, 0])
    idle, busy = (one["belief"] for one in allocator.status()["channel"])
    prior = (0.5 - missed) / (1.0 - missed - false_alarm)  # half of the slots are observed as idle
    assert idle == pytest.approx(prior * (1 - false_alarm) / (prior * (1 - false_alarm) + (1 - prior) * missed))
    assert busy == pytest.approx(prior * false_alarm / (prior * false_alarm + (1 - prior) * (1 - missed)))


def test_beliefs_are_calibrated_with_sensing_errors() -> None:
    """In independent slots the mean belief is the share of idle slots, not the share of slots observed as idle."""
    missed, false_alarm, share, slots = 0.2, 0.1, 0.4, 4000
    rng = np.random.default_rng(5)
    idle = rng.random(slots) < share
    observed = np.where(rng.random(slots) < np.where(idle, false_alarm, missed), ~idle, idle)
    allocator = station(sensing_errors={"missed": missed, "false_alarm": false_alarm})
    beliefs = []
    for state in observed.astype(int).tolist():
        allocator.decide(None, 0, states=[state])
        beliefs.append(allocator.status()["channel"][0]["belief"])
    # The standard error of the mean is below sqrt(0.25 / 4000) / (1 - missed - false_alarm) = 0.011.
    assert float(np.mean(beliefs)) == pytest.approx(share, abs=0.035)
    assert float(np.mean(observed)) > 0.45


def test_idle_and_busy_are_equally_likely_before_the_first_observation() -> None:
    allocator = station()
    for slot in (1, 2, 50):
        assert (
            allocator.explain(allocator.decide(None, 0, slot=slot).request_id).channels[0].primary_user_probability
            == 0.5
        )


@pytest.mark.parametrize("gaps", [[1] * 10, [3, 1, 1, 7, 40, 2], [500, 1]], ids=str)
def test_beliefs_follow_the_estimated_chain(gaps: list[int]) -> None:
    """In consecutive slots and over skipped slots, the belief follows from repeated steps of the chain."""
    allocator = station()
    states = chain(300, seed=1)
    for state in states:
        allocator.decide(None, 0, states=[state])
    learned = arrays(allocator)
    p01, p10 = float(learned["occupancy.p01"][0]), float(learned["occupancy.p10"][0])
    passed = 0
    for gap in gaps:
        passed += gap
        decision = allocator.decide(None, 0, slot=allocator.slot + gap)
        belief = 1.0 - allocator.explain(decision.request_id).channels[0].primary_user_probability
        assert belief == pytest.approx(ahead(p01, p10, states[-1], passed), abs=1e-12)
        assert allocator.status()["channel"][0]["belief"] == pytest.approx(belief)


def test_an_alternating_channel_is_learned() -> None:
    """There 1 - p01 - p10 is negative, and the sign of its powers alternates."""
    allocator = station()
    for t in range(200):
        allocator.decide(None, 0, states=[t % 2])
    learned = arrays(allocator)
    p01, p10 = float(learned["occupancy.p01"][0]), float(learned["occupancy.p10"][0])
    assert min(p01, p10) > 0.9
    for slot, steps in ((201, 1), (204, 4), (209, 9)):
        decision = allocator.decide(None, 0, slot=slot)
        assert 1.0 - allocator.explain(decision.request_id).channels[0].primary_user_probability == pytest.approx(
            ahead(p01, p10, 1.0, steps), abs=1e-12
        )


def test_a_late_report_counts_for_its_slot() -> None:
    allocator = station()
    for state in chain(300, seed=2):
        allocator.decide(None, 0, states=[state])
    late = allocator.decide(None)
    for _ in range(4):
        allocator.decide(None, 0)
    allocator.report(late.request_id, [1.0], [1])
    learned = arrays(allocator)
    decision = allocator.decide(None, 0)
    belief = 1.0 - allocator.explain(decision.request_id).channels[0].primary_user_probability
    assert belief == pytest.approx(
        ahead(float(learned["occupancy.p01"][0]), float(learned["occupancy.p10"][0]), 1.0, 5)
    )


def test_a_state_older_than_the_last_observation_is_ignored() -> None:
    """Its reward is counted all the same."""
    allocator = station()
    old = allocator.decide(None)
    allocator.decide(None, 0, states=[0])
    before = arrays(allocator)
    allocator.report(old.request_id, [1.0], [1])
    after = arrays(allocator)
    for name in ("last_observation.state", "last_observation.slot", "pairs", "belief", "p01", "seen"):
        assert np.array_equal(before[f"occupancy.{name}"], after[f"occupancy.{name}"])
    assert after["occupancy.plays"].tolist() == [[0.0, 1.0]]


# --- transition probabilities ----------------------------------------------------------------------------------------


def deviations(p01: float, p10: float, gap: int, looks: float) -> tuple[float, float]:
    """Return the standard deviations of the maximum-likelihood p01 and p10 from observations `gap` slots apart.

    They follow from the Fisher information: each observation has the probability of being idle given the one before.
    """

    def probability(p: float, q: float, state: int) -> float:
        return ahead(p, q, float(state), gap)

    information, idle, step = np.zeros((2, 2)), p01 / (p01 + p10), 1e-6
    for state, share in ((0, 1.0 - idle), (1, idle)):
        now = probability(p01, p10, state)
        slope = np.array([probability(p01 + step, p10, state) - now, probability(p01, p10 + step, state) - now]) / step
        information += looks * share * np.outer(slope, slope) / (now * (1.0 - now))
    first, second = np.sqrt(np.diag(np.linalg.inv(information)))
    return float(first), float(second)


@pytest.mark.parametrize(
    ("p01", "p10", "gap"),
    [(0.1, 0.25, 1), (0.6, 0.3, 1), (0.8, 0.9, 1), (0.1, 0.25, 3), (0.02, 0.05, 3), (0.02, 0.05, 9)],
)
def test_transition_probabilities_are_estimated(p01: float, p10: float, gap: int) -> None:
    """Observations in every slot, in every third and in every ninth; the bound is five standard deviations. The
    estimate uses at least 1/REFIT_FACTOR of all observations, and its prior counts as two observations, which moves it
    by less than one standard deviation."""
    looks = 3000
    states = chain(gap * looks, seed=3, p01=p01, p10=p10)
    allocator = station()
    for slot in range(gap, gap * looks + 1, gap):
        allocator.decide(None, 0, states=[states[slot - 1]], slot=slot)
    learned = arrays(allocator)
    bounds = deviations(p01, p10, gap, looks / REFIT_FACTOR - 8)
    assert abs(learned["occupancy.p01"][0] - p01) < 5 * bounds[0] < 0.6 * p01
    assert abs(learned["occupancy.p10"][0] - p10) < 5 * bounds[1] < 0.6 * p10


def test_beliefs_are_calibrated() -> None:
    """A channel is sensed in every fifth slot; beliefs of the slots between are compared with the states. The sum of
    the differences has the summed variance belief (1 - belief), times at most five because the slots of one gap are
    correlated. The bound is four standard deviations; the first 500 slots are left out."""
    states = chain(4500, seed=4)
    allocator = station()
    surprise = variance = 0.0
    for t, state in enumerate(states, 1):
        decision = allocator.decide(None, 0, states=[state if t % 5 == 0 else None])
        if t > 500 and t % 5:
            belief = 1.0 - allocator.explain(decision.request_id).channels[0].primary_user_probability
            surprise += state - belief
            variance += belief * (1.0 - belief)
    assert abs(surprise) < 4 * math.sqrt(5 * variance)
    assert 5 * variance < 4000


def test_channels_are_estimated_independently() -> None:
    """Three channels together give the estimates of each alone."""
    together, alone = station(3), [station() for _ in range(3)]
    paths = [chain(100, seed=10 + k, p01=0.1 + 0.3 * k) for k in range(3)]
    for states in zip(*paths, strict=True):
        together.decide(None, 0, states=states)
        for one, state in zip(alone, states, strict=True):
            one.decide(None, 0, states=[state])
    learned = arrays(together)
    for k, one in enumerate(alone):
        own = arrays(one)
        for name in ("p01", "p10", "belief", "pairs"):
            assert np.array_equal(learned[f"occupancy.{name}"][k], own[f"occupancy.{name}"][0])


def test_good_states_of_a_three_state_channel_count_as_idle() -> None:
    """States 0 and 2 are good."""
    world = ib.scenario(
        transition=[[[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]]], good=[[0, 2]],
        users=1, context={"dimension": 1}, perturbation="none",
    )  # fmt: skip
    allocator = ib.Allocator("mp-random", scenario=world)
    for state, seen in ((0, "idle"), (1, "busy"), (2, "idle")):
        decision = allocator.decide(None)
        allocator.report(decision.request_id, [1.0 if seen == "idle" else 0.1], [state])
        assert allocator.status()["channel"][0]["last_observed"] == seen
    assert allocator.status()["counts"]["collisions"] == 1
