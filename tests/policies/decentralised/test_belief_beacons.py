"""One common belief of all users: equal to that of a base station, and what is sent by control bits."""

from typing import Any

import numpy as np
import pytest

import idleband as ib
from idleband.kernels.rng import POLICY, stream
from idleband.policies import belief
from idleband.policies.decentralised.belief_beacons import REQUEST
from idleband.policies.knowledge import setup_of
from idleband.policies.protocol import Feedback, Slot
from idleband.simulation.users_loop import MESSAGES, USER_COLLISIONS
from tests.policies.decentralised.band import ran, started


def band(name: str = "S4", **users: Any) -> ib.Scenario:
    return ib.scenario(name, users={"coordination": "none", "control_bits": 1, **users}, perturbation="none")


def after_start(scenario: ib.Scenario, horizon: int, **settings: Any) -> Any:
    """Return a run at the end of the start phase."""
    run = started(scenario, "belief-beacons", horizon, **settings)
    while any(one.clock[0] == 0 for one in run.state):
        run.to(run.at + 1)
    return run


def leaves(state: Any) -> list[np.ndarray]:
    return [leaf for part in state for leaf in (leaves(part) if isinstance(part, tuple) else [part])]


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("name", ["S1", "S4"])
def test_plays_are_those_of_a_base_station_with_the_same_draws(name: str, seed: int) -> None:
    """From the first slot after the start phase on, mp-belief with the random stream that users agree on."""
    slots, M = 1500, 5
    scenario = band(name)
    run = started(scenario, "belief-beacons", slots, common_seed=seed)
    setup = setup_of(scenario, ib.policy("mp-belief").params)._replace(low=run.setup.low)
    assert setup.M == M
    state, rng = belief.init(setup), stream(seed, 0, POLICY)
    t, K = 0, setup.K
    for _ in range(slots):
        run.to(run.at + 1)
        if run.state[0].clock[0] == 0:
            continue
        t += 1
        slot = Slot(
            t, np.zeros((K, 1)), np.ones(K, np.bool_), np.full(K, -1, np.int64), np.full(K, np.nan), np.zeros(K),
            np.zeros(2 * K), rng,
        )  # fmt: skip
        picks = np.zeros(K, np.int64)
        assert belief.select(setup, state, slot, picks) == M
        assert sorted(run.tally.picks) == picks[:M].tolist(), t
        for k in picks[:M]:
            s = int(run.path.s[k])
            belief.update(setup, state, slot, Feedback(int(k), s, setup.h[k, s], np.nan, 0))
    assert t > slots - 200


def test_all_users_have_the_same_common_state() -> None:
    run = ran(band(), "belief-beacons", 1000)
    first, *others = (leaves(one.common) + leaves((one.agreed, one.channel, one.clock)) for one in run.state)
    for other in others:
        for a, b in zip(first, other, strict=True):
            assert np.array_equal(a, b)


def test_a_user_sends_if_and_only_if_the_state_was_not_the_likelier_one() -> None:
    run = after_start(band(), 2000)
    sent = 0
    for t in range(run.at + 1, 1000):
        messages = run.tally.now[MESSAGES]
        run.to(t)
        common, channel = run.state[0].common, run.state[0].channel
        for j, one in enumerate(run.state):
            r, k = int(one.start.rank[0]), int(run.tally.picks[j])
            assert channel[r] == k
            assert common.chains.last_observation.state[k] == run.path.s[k]  # silence, too, tells the state
            assert common.chains.last_observation.slot[k] == one.clock[0]
        bits = run.tally.minislots
        assert run.tally.now[MESSAGES] - messages == bits.sum()
        sent += bits.sum()
    assert 0.5 < sent / 1000 < 1.5  # 0.92 per slot in S4


def test_a_user_keeps_its_channel_while_it_is_one_of_the_best() -> None:
    run = after_start(band("S1"), 1000)
    before = run.tally.picks.copy()
    kept = 0
    for t in range(run.at + 1, 800):
        run.to(t)
        for j in range(5):
            if before[j] in run.tally.picks:
                assert run.tally.picks[j] == before[j]
                kept += 1
        before = run.tally.picks.copy()
    assert kept > 2000


def test_no_collision_after_the_start_phase() -> None:
    run = after_start(band(), 20_000)
    collisions = run.tally.now[USER_COLLISIONS]
    run.to(20_000)
    assert run.tally.now[USER_COLLISIONS] == collisions


def test_learned_chains_are_close_to_the_true_ones() -> None:
    """Within five standard deviations of the posterior, in logits, for all channels of S1."""
    scenario = band("S1")
    run = ran(scenario, "belief-beacons", 20_000)
    chains = run.state[2].common.chains
    for k, P in enumerate(scenario.transition):
        error = chains.mode[k] - [np.log(P[0, 1] / P[0, 0]), np.log(P[1, 0] / P[1, 1])]
        a, b, c = chains.spread[k]
        root = np.array([[a, 0.0], [b, c]])
        assert np.linalg.norm(np.linalg.solve(root, error)) < 5.0, k
    assert abs(chains.mode[9, 1] - np.log(0.01 / 0.99)) < 0.4  # ch10 is played most of the time


@pytest.mark.parametrize("perturbation", ["linear", "none"])
def test_rewards_are_sent_only_where_they_are_perturbed(perturbation: str) -> None:
    """The common rewards are within five standard deviations of the mean reward in each state."""
    scenario = ib.scenario("S1", users={"coordination": "none", "control_bits": 1}, perturbation=perturbation)
    run = ran(scenario, "belief-beacons", 20_000)
    common = run.state[0].common
    assert {int(one.perturbed[0]) for one in run.state} == {int(perturbation == "linear")}
    k = int(np.argmax(common.successes[:, 1] + common.failures[:, 1]))  # the channel that was played most
    a, b = common.successes[k, 1], common.failures[k, 1]
    mean, count = a / (a + b), a + b
    if perturbation == "none":
        assert mean == pytest.approx(1.0, abs=2.0 / count)
        return
    theta = run.path.theta
    clear = mean_reward_in_good_state(scenario, theta, k)
    assert clear < 0.99
    assert abs(mean - clear) < 5.0 * np.sqrt(clear * (1.0 - clear) / count) + 2.0 / count


def mean_reward_in_good_state(scenario: ib.Scenario, theta: np.ndarray, k: int) -> float:
    from idleband.scenario.upper_bound import levels

    _, probability, pay = levels(scenario, theta)
    return float((probability[k] * pay[k, :, 1]).sum())


def test_three_states_take_two_bits() -> None:
    channel = [[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.1, 0.3, 0.6]]
    settings: dict[str, Any] = {
        "transition": [channel] * 4, "rewards": [0.0, 0.4, 1.0], "reward": "additive", "perturbation": "none",
        "context": {"dimension": 1},
    }  # fmt: skip
    two = ib.scenario(**settings, users={"count": 2, "coordination": "none", "control_bits": 2})
    run = after_start(two, 600)
    for t in range(run.at + 1, 400):
        run.to(t)
        last = run.state[0].common.chains.last_observation
        for k in run.tally.picks:
            assert last.state[k] == run.path.s[k]
    one = ib.scenario(**settings, users={"count": 2, "coordination": "none", "control_bits": 1})
    with pytest.raises(ib.InputError, match=r"control_bits = 1: must be at least 2 for channels with 3 states"):
        ib.simulate(one, "belief-beacons", horizon=10)


def test_after_a_late_arrival_all_start_again_together() -> None:
    """The newcomer collides, and a user who collides asks the others to start again, without memory."""
    run = started(band("S1", arrive=[1, 1, 1, 1, 2000]), "belief-beacons", 10_000)
    run.to(1999)
    assert len({int(one.clock[0]) for one in run.state[:4]}) == 1
    assert all(int(one.start.users[0]) == 4 for one in run.state[:4])
    run.to(10_000)
    assert sorted(int(one.start.rank[0]) for one in run.state) == list(range(5))
    assert all(int(one.start.users[0]) == 5 for one in run.state)
    clocks = {int(one.clock[0]) for one in run.state}
    assert len(clocks) == 1
    assert 10 * REQUEST < clocks.pop() < 8000 - REQUEST


def test_the_silence_of_a_user_who_has_left_is_noticed() -> None:
    run = started(band("S4", leave=[0, 1000, 0, 0, 0]), "belief-beacons", 5000)
    run.to(5000)
    present = [one for j, one in enumerate(run.state) if j != 1]
    assert all(int(one.start.users[0]) == 4 for one in present)
    assert len({int(one.clock[0]) for one in present}) == 1
