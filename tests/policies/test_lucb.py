"""MP-LUCB: regression, index under every parameter setting, and replacement of candidates."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

import idleband as ib
from idleband.kernels.rng import POLICY, normal, stream
from idleband.policies.regenerative import IDLE, SB1
from tests.policies.station import Station, best

X = [[0.9, 0.1], [0.2, 0.8], [0.5, 0.5], [0.3, 0.4]]


def ranked(**parameters: Any) -> tuple[Station, np.ndarray, np.ndarray]:
    """Return a station after 30 slots and a selection, with n_hat and widths from numpy.linalg."""
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
    """Return the mean state reward of each channel over its plays."""
    return np.asarray(station.state.estimates.total_h / station.state.estimates.plays)


@pytest.mark.parametrize("ridge", [1.0, 0.2])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("width", "sign"), [("optimistic", 1), ("pessimistic", -1)])
def test_index_is_base_minus_estimate_and_width(width: str, sign: int, shared: bool, ridge: float) -> None:
    station, n_hat, delta = ranked(width=width, shared=shared, lambda_=ridge)
    np.testing.assert_allclose(station.slot.indices, mean_h(station) - n_hat + sign * delta, rtol=0, atol=1e-9)


def test_base_index_adds_the_width_of_the_frame() -> None:
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
    """Without perturbation, width and replacement only the blocks and the index of RCA-M remain."""
    scenario = ib.scenario("S1", perturbation="none")
    size: dict[str, Any] = {"horizon": 3000, "replications": 2}
    plain = ib.simulate(scenario, "rca-m", **size)
    framed = ib.simulate(scenario, "mp-lucb-rca", beta=0.0, replace="off", **size)
    assert np.array_equal(framed.plays, plain.plays)
    assert np.array_equal(framed.reward, plain.reward)


# --- Thompson sampling, and C2UCB ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
def test_sampled_width_is_drawn_for_each_channel_and_slot(shared: bool) -> None:
    """index = base - n_hat + delta z, where z are the next draws of the policy's stream, channel by channel."""
    station, n_hat, delta = ranked(width="sampled", shared=shared)
    expected, before = stream(0, 0, POLICY), station.rng.copy()
    z = np.array([[normal(expected) for _ in range(4)] for _ in range(31)])
    assert np.array_equal(expected, before)  # there are no other draws
    np.testing.assert_allclose(station.slot.indices, mean_h(station) - n_hat + delta * z[-1], rtol=0, atol=1e-9)


def test_sampled_indices_are_normal_around_the_estimate() -> None:
    """Indices of 4000 slots with the same contexts and no feedback: Kolmogorov-Smirnov test at level 1e-6.

    Correlations between channels are within five standard errors, 1 / sqrt(4000) each, of zero.
    """
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


def test_sampled_width_in_the_frame_of_rca_is_drawn_for_ranked_channels_only() -> None:
    station = Station("mp-lucb-rca", K=3, M=1, width="sampled", replace="off")
    rng = stream(0, 0, POLICY)
    station.play([1, 1, 1])  # every channel is ranked for the first block
    for _ in range(3):
        normal(rng)
    assert np.array_equal(station.rng, rng)
    station.play([0, 1, 1])  # the block continues, so that no channel is ranked
    assert np.array_equal(station.rng, rng)


def test_c2ucb_equals_its_published_algorithm() -> None:
    """Compare with Algorithm 1 of Qin, Chen and Zhu in NumPy, for the sum of M rewards.

    The model learns from all plays of a slot at its end.
    """
    d, K, M, alpha, ridge = 3, 6, 3, 0.7, 0.5
    scenario = {"reward": "additive", "context": {"dimension": d}, "perturbation": {"theta": [0.6, 0.2, 0.4]}}
    station = Station("c2ucb", K=K, M=M, scenario=scenario, beta=alpha, lambda_=ridge)
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


def test_c2ucb_distinguishes_channels_by_contexts_only() -> None:
    """Channels with equal contexts have equal indices whatever their rewards, so the lower one is always played."""
    station = Station("c2ucb", K=2, M=1)
    for _ in range(50):
        assert station.play([0, 1], x=[[0.5, 0.5]] * 2) == [0]


def test_settings_of_c2ucb() -> None:
    values = ib.policy("c2ucb").values
    expected = {"target": "reward", "base": "none", "estimate": "add", "width": "optimistic", "frame": "slot"}
    expected |= {"explore_first": False, "replace": "off", "shared": True}
    assert expected.items() <= values.items()
    with pytest.raises(ib.InputError, match="it does not predict the perturbation"):
        ib.learned("S1", "c2ucb", horizon=10, replications=1)


def test_linucb_equals_its_published_algorithm() -> None:
    """Compare with Algorithm 1 (disjoint models) of Li, Chu, Langford and Schapire in NumPy, for M plays."""
    d, K, M, alpha = 3, 5, 2, 0.7
    scenario = {"reward": "additive", "context": {"dimension": d}, "perturbation": {"theta": [0.6, 0.2, 0.4]}}
    station = Station("linucb", K=K, M=M, scenario=scenario, beta=alpha)
    A, b, rng = np.tile(np.eye(d), (K, 1, 1)), np.zeros((K, d)), np.random.default_rng(5)
    for _ in range(100):
        x, s = rng.uniform(0, 1, (K, d)), rng.integers(0, 2, K)
        n = x @ [0.6, 0.2, 0.4]
        index = np.array(
            [x[k] @ np.linalg.solve(A[k], b[k]) + alpha * np.sqrt(x[k] @ np.linalg.solve(A[k], x[k])) for k in range(K)]
        )
        available = rng.uniform(size=K) < 0.7
        picks = station.choose(x=x, available=available)
        np.testing.assert_allclose(station.slot.indices, index, rtol=0, atol=1e-9)
        assert picks == best(index, available, M)
        for k in picks:
            station.learn(k, int(s[k]), n[k])
            A[k] += np.outer(x[k], x[k])
            b[k] += (station.setup.h[k, s[k]] - n[k]) * x[k]
    assert ib.policy("linucb").values == ib.policy("c2ucb").values | {"shared": False}


# --- Algorithm 1 --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["prediction", "perturbation"])
def test_policy_equals_algorithm_1_of_the_paper(target: str) -> None:
    """Compare with Algorithm 1 in NumPy, with all states sensed.

    Target `prediction` is the algorithm as printed; with `perturbation` theta changes, which tests lines 7, 8 and 13.
    Bad states have reward 0, because otherwise the printed algorithm would replace no candidate.
    """
    d, K, M, beta = 2, 5, 2, 0.7  # 1
    scenario = {"reward": "additive", "rewards": [0.0, 1.0], "sensing": "all", "context": {"dimension": d}}
    station = Station("mp-lucb-printed", K=K, M=M, scenario=scenario, beta=beta, target=target)
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
                if r[m] <= 0 and j in complement and r[j] >= 0 and r[m] < r[j]:  # 15; the last condition is an addition
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


def test_model_with_target_prediction_never_changes() -> None:
    """Line 22 as printed keeps any theta: (A + x x')^-1 (b + x x' theta) = theta. A still grows."""
    station = Station("mp-lucb-printed", K=2, M=2)
    station.state.theta[:] = [[0.3, -0.2], [0.1, 0.9]]
    for x in ([[0.9, 0.1], [0.4, 0.7]], [[0.2, 0.8], [0.6, 0.6]]):
        station.play([1, 0], x=x, n=[0.5, 1.1])
    assert station.state.theta.tolist() == [[0.3, -0.2], [0.1, 0.9]]
    assert (station.state.A_inv[:, [0, 1], [0, 1]] < 1).all()


# --- regression targets --------------------------------------------------------------------------------------------


def one_sample(state: int, n: float, **settings: Any) -> np.ndarray:
    """Return the regression target of one play: twice theta after one sample with context (1, 0) and lambda = 1."""
    scenario = {key: settings.pop(key) for key in ("feedback", "reward") if key in settings}
    station = Station("mp-lucb", K=1, M=1, scenario=scenario, **settings)
    station.play([state], x=[[1.0, 0.0]], n=[n])
    return np.asarray(station.state.theta[0] * 2)


def test_regression_targets_with_measured_perturbation() -> None:
    assert one_sample(1, 0.8).tolist() == [0.8, 0.0]
    assert one_sample(1, 0.8, target="prediction").tolist() == [0.0, 0.0]
    assert one_sample(1, 0.8, target="reward").tolist() == [1.0, 0.0]  # threshold reward: 1 because 1 - 0.8 > 0
    assert one_sample(1, 1.2, target="reward").tolist() == [0.1, 0.0]


def test_regression_targets_without_measured_perturbation() -> None:
    """The additive reward gives n = h - r in any state; the threshold reward gives 0 or 1, in good slots only."""
    for s in (0, 1):
        assert one_sample(s, 0.8, feedback="reward", reward="additive")[0] == pytest.approx(0.8)
    assert one_sample(1, 0.8, feedback="reward").tolist() == [0.0, 0.0]
    assert one_sample(1, 1.2, feedback="reward").tolist() == [1.0, 0.0]
    assert one_sample(0, 1.2, feedback="reward").tolist() == [0.0, 0.0]


def test_play_without_a_target_does_not_change_the_model() -> None:
    station = Station("mp-lucb", K=1, M=1, scenario={"feedback": "reward"})
    station.play([0], x=[[1.0, 0.0]], n=[1.2])
    assert station.state.A_inv[0].tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert station.state.estimates.plays[0] == 1


@pytest.mark.parametrize("preset", ["S1", "S4"])
@pytest.mark.parametrize("replace", ["reward", "indicator"])
@pytest.mark.parametrize("sensing", ["played", "all"])
def test_theta_of_the_printed_policy_stays_zero(preset: str, replace: str, sensing: str) -> None:
    scenario = ib.scenario(preset, sensing=sensing)
    result = ib.simulate(scenario, "mp-lucb-printed", replace=replace, horizon=3000, replications=2)
    assert result.state is not None
    for state in result.state:
        assert not state.theta.any()  # exactly zero
        assert (state.A_inv[:, 0, 0] < 1).any()  # although there were samples


@pytest.mark.parametrize("name", ["mp-lucb", "mp-lucb-rca"])
def test_estimate_of_theta_converges(name: str) -> None:
    """Without noise the error of the ridge estimate is lambda A^-1 theta: it shrinks, below 1e-3 after 50,000 slots."""
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
    """Return the selected channels if channel k has margin margins[k] and the ranking gives `candidates`.

    The state term is 1 for every channel (none was played), so n_hat is set to 1 - margin. Without base and width, and
    with n_hat added as printed, the channels with the smallest margins are ranked first.
    """
    K = len(margins)
    station = Station("mp-lucb", K=K, M=len(candidates), beta=0.0, base="none", estimate="add", **parameters)
    station.state.theta[:, 0] = [1 - margin for margin in margins]
    x = np.zeros((K, 2))
    x[:, 0] = 1
    order = sorted(range(K), key=lambda k: margins[k])[: len(candidates)]
    assert sorted(order) == candidates, "the example must rank the candidates first"
    return station.choose(x=x)


def test_replacement_in_worked_examples() -> None:
    assert replaced([-0.5, 0.2, 0.3], [0]) == [1]  # by the first other channel with margin >= 0, not the best
    assert replaced([-0.5, -0.4, 0.3, 0.2], [0, 1]) == [2, 3]  # other channels in channel order, first candidate first
    assert replaced([0.1, 0.2, 0.3], [0]) == [0]  # a candidate with a positive margin stays
    assert replaced([0.1, -0.5, 0.2], [0, 1]) == [0, 2]  # also if another candidate is replaced
    assert replaced([-0.5, -0.1, -0.2], [0]) == [0]  # no other channel has a margin >= 0
    assert replaced([0.0, 0.0], [0]) == [0]
    assert replaced([0.0, 0.0, 0.3], [0]) == [2]  # a candidate with margin 0 is replaced only by a larger margin
    assert replaced([-0.5, 0.0, -0.3], [0]) == [1]  # a channel with margin 0 may replace a candidate
    assert replaced([-0.5, 0.0, 0.3], [0]) == [2]  # and is then itself replaced by a larger margin
    assert replaced([-0.5, 0.2], [0], replace="off") == [0]


def test_replacement_ignores_unavailable_channels() -> None:
    station = Station("mp-lucb", K=3, M=1, beta=0.0, base="none", estimate="add")
    station.state.theta[:, 0] = [1.5, 0.8, 0.7]
    x = [[1.0, 0.0]] * 3
    assert station.choose(x=x, available=[True, False, True]) == [2]


def test_margins_use_sensed_states() -> None:
    """With a sensed bad state the margin is -n_hat (indicator) or h(0) - n_hat (reward).

    If the state is not sensed, h is the mean over plays.
    """
    for replace, bad, picks in (("indicator", 0.0, [1]), ("reward", 0.1, [0])):
        station = Station("mp-lucb", K=2, M=1, beta=0.0, replace=replace)
        station.state.theta[:, 0] = [0.05, 0.05]
        assert station.choose(x=[[1.0, 0.0]] * 2, sensed=[0, 1]) == picks
        np.testing.assert_allclose(station.state.estimates.margin, [bad - 0.05, 1 - 0.05])
        assert station.choose(x=[[1.0, 0.0]] * 2, sensed=[1, 1]) == [0]
    station = Station("mp-lucb", K=2, M=1, beta=0.0)
    station.play([0, 0])  # channel 0 was bad: mean h is 0.1
    station.state.theta[:, 0] = [0.2, 0.2]
    station.choose(x=[[1.0, 0.0]] * 2)
    np.testing.assert_allclose(station.state.estimates.margin, [0.1 - 0.2, 1 - 0.2])


def test_replaced_channel_drops_its_block_and_the_replacement_starts_one() -> None:
    station = Station("mp-lucb-rca", K=2, M=1, beta=0.0)
    assert station.play([1, 0]) == [0]
    station.state.theta[:, 0] = [1.5, 0.0]
    assert station.choose(x=[[1.0, 0.0]] * 2) == [1]
    assert station.state.estimates.blocks.phase.tolist() == [IDLE, SB1]
    assert station.state.estimates.blocks.slots.tolist() == [0, 0]
    assert int(station.state.estimates.blocks.dropped[0]) == 1
    station.state.theta[:] = 0.0
    station.learn(1, 0)
    assert station.play([0, 0]) == [1]  # the block of the replacement continues


def test_late_feedback_is_learned_with_the_context_of_its_slot() -> None:
    """Late feedback of two slots gives the same model as prompt feedback: cached values serve their own slot only."""
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
