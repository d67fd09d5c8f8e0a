"""MP-LUCB: what it learns, how it ranks under every reading, and whom it replaces."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

import idleband as ib
from idleband.kernels.rng import POLICY, normal, stream
from idleband.policies.regenerative import IDLE, SB1
from tests.policies.station import Station

X = [[0.9, 0.1], [0.2, 0.8], [0.5, 0.5], [0.3, 0.4]]


def ranked(**parameters: Any) -> tuple[Station, np.ndarray, np.ndarray]:
    """A station after some slots, about to pick: its n_hat and widths from numpy.linalg."""
    station = Station("mp-lucb", K=4, M=2, **{"replace": "off", "beta": 0.7, "explore_first": True, **parameters})
    rng = np.random.default_rng(3)
    ridge = parameters.get("lambda_", 1.0)
    shared = parameters.get("shared", False)
    A = [np.eye(2) * ridge for _ in range(4)]
    b = [np.zeros(2) for _ in range(4)]
    for _ in range(30):
        x, n = rng.uniform(0, 1, (4, 2)), rng.uniform(0, 1.5, 4)
        for k in station.play(rng.integers(0, 2, 4).tolist(), n=n.tolist(), x=x):
            for m in range(4) if shared else (k,):
                A[m] += np.outer(x[k], x[k])
                b[m] += n[k] * x[k]
    station.choose(x=X)
    n_hat = np.array([np.array(X[k]) @ np.linalg.solve(A[k], b[k]) for k in range(4)])
    delta = np.array([math.sqrt(np.array(X[k]) @ np.linalg.solve(A[k], np.array(X[k]))) for k in range(4)])
    return station, n_hat, 0.7 * delta


def mean_h(station: Station) -> np.ndarray:
    return np.asarray(station.state.estimates.total_h / station.state.estimates.plays)


@pytest.mark.parametrize("ridge", [1.0, 0.2])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("width", "sign"), [("optimistic", 1), ("pessimistic", -1)])
def test_index_is_base_minus_estimate_and_width(width: str, sign: int, shared: bool, ridge: float) -> None:
    station, n_hat, delta = ranked(width=width, shared=shared, lambda_=ridge)
    np.testing.assert_allclose(station.slot.indices, mean_h(station) - n_hat + sign * delta, rtol=0, atol=1e-9)


def test_base_index_adds_the_frames_own_width() -> None:
    station, n_hat, delta = ranked(base="index", L=0.9)
    frame = np.sqrt(0.9 * math.log(31) / station.state.estimates.plays)
    np.testing.assert_allclose(station.slot.indices, mean_h(station) + frame - n_hat + delta, rtol=0, atol=1e-9)


def test_base_none_and_estimate_added_is_the_printed_formula() -> None:
    station, n_hat, delta = ranked(base="none", estimate="add", explore_first=False)
    np.testing.assert_allclose(station.slot.indices, n_hat + delta, rtol=0, atol=1e-9)


def test_base_in_the_frame_of_rca_is_its_index_over_sb2() -> None:
    station = Station("mp-lucb-rca", K=2, M=1, beta=0.0, replace="off", L=0.7)
    for s in ([1, 0], [0, 0], [1, 0], [0, 0], [0, 0]):
        station.play(s, n=[0.0, 0.0])
    station.choose()
    expected = [1.1 / 2 + math.sqrt(0.7 * math.log(3) / 2), 0.1 + math.sqrt(0.7 * math.log(3))]
    np.testing.assert_allclose(station.slot.indices, expected, rtol=1e-12)


def test_without_data_the_base_is_zero_or_infinite() -> None:
    for explore_first, base in ((False, 0.0), (True, math.inf)):
        station = Station("mp-lucb", K=3, M=1, beta=0.0, explore_first=explore_first)
        station.choose()
        assert station.slot.indices.tolist() == [base] * 3


def test_contexts_are_learned_only_from_played_channels() -> None:
    station = Station("mp-lucb", K=2, M=1, beta=0.0)
    station.play([1, 1], x=[[1, 0], [1, 0]], n=[0.5, 0.5])
    assert station.state.theta.tolist() == [[0.25, 0.0], [0.0, 0.0]]


def test_without_perturbation_the_frame_of_rca_plays_as_rca_m() -> None:
    """With nothing to learn, no width of its own and no replacement, only RCA's blocks and index are left."""
    scenario = ib.scenario("S1", perturbation="none")
    size: dict[str, Any] = {"horizon": 3000, "replications": 2}
    plain = ib.simulate(scenario, "rca-m", **size)
    framed = ib.simulate(scenario, "mp-lucb-rca", beta=0.0, replace="off", **size)
    assert np.array_equal(framed.plays, plain.plays)
    assert np.array_equal(framed.reward, plain.reward)


# --- Thompson sampling, and C2UCB ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
def test_sampled_width_is_drawn_anew_for_each_channel(shared: bool) -> None:
    """index = base - n_hat + delta z with z the next draws of the policy's stream, channel by channel."""
    station, n_hat, delta = ranked(width="sampled", shared=shared)
    expected, before = stream(0, 0, POLICY), station.rng.copy()
    z = np.array([[normal(expected) for _ in range(4)] for _ in range(31)])
    assert np.array_equal(expected, before)  # no draw beside these
    np.testing.assert_allclose(station.slot.indices, mean_h(station) - n_hat + delta * z[-1], rtol=0, atol=1e-9)


def test_sampled_indices_are_normal_around_the_estimate() -> None:
    """4000 slots with the same contexts and nothing learned between. Kolmogorov and Smirnov at a level of 1e-6; and no
    correlation between channels: that of 4000 pairs has a deviation of 1 / sqrt(4000), five of them are allowed."""
    station, n_hat, delta = ranked(width="sampled")
    sample = []
    for _ in range(4000):
        station.choose(x=X)
        sample.append(station.slot.indices.copy())
    z = (np.array(sample) - mean_h(station) + n_hat) / delta
    for k in range(4):
        assert stats.kstest(z[:, k], stats.norm.cdf).pvalue > 1e-6
    assert np.abs(np.corrcoef(z.T) - np.eye(4)).max() < 5 / math.sqrt(4000)


@pytest.mark.parametrize("width", ["optimistic", "pessimistic"])
def test_other_widths_draw_nothing(width: str) -> None:
    station, _, _ = ranked(width=width)
    assert np.array_equal(station.rng, stream(0, 0, POLICY))


def test_sampled_in_the_frame_of_rca_draws_for_contenders_only() -> None:
    station = Station("mp-lucb-rca", K=3, M=1, width="sampled", replace="off")
    rng = stream(0, 0, POLICY)
    station.play([1, 1, 1])  # every channel contends for the first block
    for _ in range(3):
        normal(rng)
    assert np.array_equal(station.rng, rng)
    station.play([0, 1, 1])  # its block goes on: nobody contends
    assert np.array_equal(station.rng, rng)


def test_c2ucb_line_by_line() -> None:
    """Algorithm 1 of Qin, Chen and Zhu in plain NumPy, the sum of M rewards to be made largest: the model learns all of
    a slot's picks when the slot has ended."""
    d, K, M, alpha, ridge = 3, 6, 3, 0.7, 0.5
    world = {"reward": "additive", "context": {"dimension": d}, "perturbation": {"theta": [0.6, 0.2, 0.4]}}
    station = Station("c2ucb", K=K, M=M, world=world, beta=alpha, lambda_=ridge)
    V, b, rng = ridge * np.eye(d), np.zeros(d), np.random.default_rng(5)
    for _ in range(150):
        x, s = rng.uniform(0, 1, (K, d)), rng.integers(0, 2, K)
        n = x @ [0.6, 0.2, 0.4]
        theta = np.linalg.solve(V, b)
        u = x @ theta + alpha * np.sqrt(np.einsum("ki,ij,kj->k", x, np.linalg.inv(V), x))
        available = rng.uniform(size=K) < 0.7
        order = [k for k in np.argsort(-u).tolist() if available[k]]
        picks = station.choose(x=x, available=available)
        np.testing.assert_allclose(station.slot.indices, u, rtol=0, atol=1e-9)
        assert picks == sorted(order[:M])
        for k in picks:
            station.learn(k, int(s[k]), n[k])
            V += np.outer(x[k], x[k])
            b += (station.setup.h[k, s[k]] - n[k]) * x[k]


def test_c2ucb_cannot_tell_channels_apart_but_by_their_contexts() -> None:
    """Two channels with the same context have the same index, whatever they paid: the lower number wins for ever."""
    station = Station("c2ucb", K=2, M=1)
    for _ in range(50):
        assert station.play([0, 1], x=[[0.5, 0.5]] * 2) == [0]


def test_settings_of_c2ucb() -> None:
    values = ib.policy("c2ucb").values
    expected = {"target": "reward", "base": "none", "estimate": "add", "width": "optimistic", "frame": "slot"}
    expected |= {"explore_first": False, "replace": "off", "shared": True}
    assert expected.items() <= values.items()
    with pytest.raises(ib.InputError, match="what it predicts is no perturbation"):
        ib.learned("S1", "c2ucb", horizon=10, replications=1)


# --- Algorithm 1 --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["prediction", "perturbation"])
def test_algorithm_1_line_by_line(target: str) -> None:
    """In plain NumPy, with every state sensed. `prediction` is to the letter; with `perturbation` it can learn, so that
    lines 7, 8 and 13 have something to say. Bad states pay 0, or no candidate would be replaced to the letter."""
    d, K, M, beta = 2, 5, 2, 0.7  # 1
    world = {"reward": "additive", "rewards": [0.0, 1.0], "sensing": "all", "context": {"dimension": d}}
    station = Station("mp-lucb-printed", K=K, M=M, world=world, beta=beta, target=target)
    A, b = [np.eye(d) for _ in range(K)], [np.zeros(d) for _ in range(K)]  # 2
    rng, replacements = np.random.default_rng(7), 0
    for _ in range(60):  # 3
        x = rng.uniform(0, 1, (K, d))  # 4
        n = x @ [0.9, 0.8]
        theta, u = np.zeros((K, d)), np.zeros(K)
        s = rng.integers(0, 2, K)  # 6
        for k in range(K):  # 5
            theta[k] = np.linalg.inv(A[k]) @ b[k]  # 7
            u[k] = theta[k] @ x[k] + beta * math.sqrt(x[k] @ np.linalg.inv(A[k]) @ x[k])  # 8
        order = np.argsort(-u, kind="stable")  # 10
        candidates, complement = sorted(order[:M].tolist()), set(order[M:].tolist())  # 11
        r = np.array([0.0, 1.0])[s] - (theta * x).sum(axis=1)  # 13
        for j in range(K):  # 12
            for i, m in enumerate(candidates):  # 14
                if r[m] <= 0 and j in complement and r[j] >= 0 and r[m] < r[j]:  # 15; the last is ours
                    candidates[i] = j  # 16
                    replacements += 1
                    break  # j is no longer outside
        assert station.choose(x=x, sensed=s) == candidates
        np.testing.assert_allclose(station.slot.indices, u, rtol=0, atol=1e-9)
        for m in candidates:  # 20
            station.learn(m, int(s[m]), n[m])
            A[m] += np.outer(x[m], x[m])  # 21
            b[m] += (theta[m] @ x[m] if target == "prediction" else n[m]) * x[m]  # 22
        np.testing.assert_allclose(station.state.A_inv, np.linalg.inv(A), rtol=0, atol=1e-9)
    assert replacements > 10


def test_a_model_told_its_own_prediction_never_changes() -> None:
    """Line 22 to the letter, whatever theta is: (A + x x')^-1 (b + x x' theta) = theta. A adds up all the same."""
    station = Station("mp-lucb-printed", K=2, M=2)
    station.state.theta[:] = [[0.3, -0.2], [0.1, 0.9]]
    for x in ([[0.9, 0.1], [0.4, 0.7]], [[0.2, 0.8], [0.6, 0.6]]):
        station.play([1, 0], x=x, n=[0.5, 1.1])
    assert station.state.theta.tolist() == [[0.3, -0.2], [0.1, 0.9]]
    assert (station.state.A_inv[:, [0, 1], [0, 1]] < 1).all()


# --- what is regressed --------------------------------------------------------------------------------------------


def one_sample(state: int, n: float, **settings: Any) -> np.ndarray:
    """theta of a channel after one sample with context (1, 0): half the target (lambda = 1)."""
    world = {key: settings.pop(key) for key in ("feedback", "reward") if key in settings}
    station = Station("mp-lucb", K=1, M=1, world=world, **settings)
    station.play([state], x=[[1.0, 0.0]], n=[n])
    return np.asarray(station.state.theta[0] * 2)


def test_targets() -> None:
    assert one_sample(1, 0.8).tolist() == [0.8, 0.0]
    assert one_sample(1, 0.8, target="prediction").tolist() == [0.0, 0.0]
    assert one_sample(1, 0.8, target="reward").tolist() == [1.0, 0.0]  # threshold: 1 - 0.8 > 0 pays 1
    assert one_sample(1, 1.2, target="reward").tolist() == [0.1, 0.0]


def test_target_without_a_measured_perturbation() -> None:
    """From the additive reward n = h - r in any state; from the threshold reward a probability, in good slots only."""
    for s in (0, 1):
        assert one_sample(s, 0.8, feedback="reward", reward="additive")[0] == pytest.approx(0.8)
    assert one_sample(1, 0.8, feedback="reward").tolist() == [0.0, 0.0]
    assert one_sample(1, 1.2, feedback="reward").tolist() == [1.0, 0.0]
    assert one_sample(0, 1.2, feedback="reward").tolist() == [0.0, 0.0]


def test_a_slot_without_a_sample_leaves_the_model_alone() -> None:
    station = Station("mp-lucb", K=1, M=1, world={"feedback": "reward"})
    station.play([0], x=[[1.0, 0.0]], n=[1.2])
    assert station.state.A_inv[0].tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert station.state.estimates.plays[0] == 1


@pytest.mark.parametrize("world", ["S1", "S4"])
@pytest.mark.parametrize("replace", ["reward", "indicator"])
@pytest.mark.parametrize("sensing", ["played", "all"])
def test_printed_cannot_learn(world: str, replace: str, sensing: str) -> None:
    scenario = ib.scenario(world, sensing=sensing)
    result = ib.simulate(scenario, "mp-lucb-printed", replace=replace, horizon=3000, replications=2)
    assert result.state is not None
    for state in result.state:
        assert not state.theta.any()  # exactly zero
        assert (state.A_inv[:, 0, 0] < 1).any()  # although it saw samples


@pytest.mark.parametrize("name", ["mp-lucb", "mp-lucb-rca"])
def test_estimate_converges(name: str) -> None:
    """Without noise the ridge estimate errs by lambda A^-1 theta only: below 1e-3 after 50,000 plays, and shrinking."""
    theta = [0.117, 0.279, 0.112, 0.443, 0.308, 0.152, 0.182, 0.197]
    scenario = ib.scenario("S1", perturbation={"theta": theta})
    errors = []
    for horizon in (500, 50_000):
        result = ib.simulate(scenario, name, horizon=horizon, replications=1)
        assert result.state is not None
        best = int(result.plays[0].argmax())
        errors.append(float(np.abs(result.state[0].theta[best] - theta).max()))
    assert errors[1] < 1e-3
    assert errors[1] < errors[0] / 10


# --- replacement, lines 12-19 ----------------------------------------------------------------------------------------


def replaced(
    margins: list[float], candidates: list[int], sensed: list[int] | None = None, **parameters: Any
) -> list[int]:
    """The picks where channel k's margin is margins[k] and the first ranking gave `candidates`.

    The state term is 1 for every channel (none was played), so n_hat is set to 1 - margin. Without base and width, and
    with n_hat added as printed, the channels of smallest margin are ranked first.
    """
    K = len(margins)
    station = Station("mp-lucb", K=K, M=len(candidates), beta=0.0, base="none", estimate="add", **parameters)
    station.state.theta[:, 0] = [1 - margin for margin in margins]
    x = np.zeros((K, 2))
    x[:, 0] = 1
    order = sorted(range(K), key=lambda k: margins[k])[: len(candidates)]
    assert sorted(order) == candidates, "the example must rank the candidates first"
    return station.choose(x=x)


def test_replacement_by_hand() -> None:
    assert replaced([-0.5, 0.2, 0.3], [0]) == [1]  # the first outsider with margin >= 0, not the best
    assert replaced([-0.5, -0.4, 0.3, 0.2], [0, 1]) == [2, 3]  # outsiders in channel order, first candidate first
    assert replaced([0.1, 0.2, 0.3], [0]) == [0]  # a candidate with a positive margin stays
    assert replaced([0.1, -0.5, 0.2], [0, 1]) == [0, 2]  # also beside one that goes
    assert replaced([-0.5, -0.1, -0.2], [0]) == [0]  # no outsider has a margin >= 0
    assert replaced([0.0, 0.0], [0]) == [0]
    assert replaced([0.0, 0.0, 0.3], [0]) == [2]  # margin 0 may be replaced, but not by one that is not larger
    assert replaced([-0.5, 0.0, -0.3], [0]) == [1]  # margin 0 may replace
    assert replaced([-0.5, 0.0, 0.3], [0]) == [2]  # and may then be replaced itself by a larger one
    assert replaced([-0.5, 0.2], [0], replace="off") == [0]


def test_replacement_counts_unavailable_channels_out() -> None:
    station = Station("mp-lucb", K=3, M=1, beta=0.0, base="none", estimate="add")
    station.state.theta[:, 0] = [1.5, 0.8, 0.7]
    x = [[1.0, 0.0]] * 3
    assert station.choose(x=x, available=[True, False, True]) == [2]


def test_margins_use_sensed_states() -> None:
    """Sensed bad: the indicator's margin is -n_hat, the reward's h(0) - n_hat; not sensed: the mean h over plays."""
    for replace, bad, picks in (("indicator", 0.0, [1]), ("reward", 0.1, [0])):
        station = Station("mp-lucb", K=2, M=1, beta=0.0, replace=replace)
        station.state.theta[:, 0] = [0.05, 0.05]
        assert station.choose(x=[[1.0, 0.0]] * 2, sensed=[0, 1]) == picks
        np.testing.assert_allclose(station.state.estimates.margin, [bad - 0.05, 1 - 0.05])
        assert station.choose(x=[[1.0, 0.0]] * 2, sensed=[1, 1]) == [0]
    station = Station("mp-lucb", K=2, M=1, beta=0.0)
    station.play([0, 0])  # channel 0 seen bad: mean h 0.1
    station.state.theta[:, 0] = [0.2, 0.2]
    station.choose(x=[[1.0, 0.0]] * 2)
    np.testing.assert_allclose(station.state.estimates.margin, [0.1 - 0.2, 1 - 0.2])


def test_a_replaced_channel_drops_its_block_and_its_replacement_starts_one() -> None:
    station = Station("mp-lucb-rca", K=2, M=1, beta=0.0)
    assert station.play([1, 0]) == [0]
    station.state.theta[:, 0] = [1.5, 0.0]
    assert station.choose(x=[[1.0, 0.0]] * 2) == [1]
    assert station.state.estimates.blocks.phase.tolist() == [IDLE, SB1]
    assert station.state.estimates.blocks.slots.tolist() == [0, 0]
    assert int(station.state.estimates.blocks.dropped[0]) == 1
    station.state.theta[:] = 0.0
    station.learn(1, 0)
    assert station.play([0, 0]) == [1]  # the block of the replacement goes on


def test_late_feedback_is_learned_with_its_own_slot() -> None:
    """What ranking kept is used only for the slot it was computed in: two slots fed back late give the same model."""
    prompt, late = Station("mp-lucb", K=1, M=1), Station("mp-lucb", K=1, M=1)
    contexts = [[[1.0, 0.2]], [[0.3, 0.9]]]
    for x in contexts:
        prompt.play([1], x=x, n=[0.4])
    slots = []
    for x in contexts:
        late.choose(x=x)
        slots.append(late.slot)
    for late.slot in slots:
        late.learn(0, 1, 0.4)
    np.testing.assert_allclose(late.state.A_inv, prompt.state.A_inv, rtol=0, atol=1e-14)
    np.testing.assert_allclose(late.state.theta, prompt.state.theta, rtol=0, atol=1e-14)
