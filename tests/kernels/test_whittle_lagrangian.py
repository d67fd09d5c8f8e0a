"""The upper bound compared with its linear program, and the Whittle index with its closed form and value iteration."""

import os
import subprocess
import sys

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

import idleband as ib
from idleband.kernels import whittle_lagrangian
from idleband.kernels.whittle import whittle
from idleband.kernels.whittle_lagrangian import Channels
from idleband.scenario.markov import gilbert_elliott, stationary
from idleband.scenario.presets import PRESETS
from idleband.scenario.upper_bound import levels, padded_transition

Floats = npt.NDArray[np.float64]


def program(channels: Channels, plays: float) -> float:
    """Return the value of the linear program.

    Its variables are the frequencies with which the last observation of channel k is state s of a slots ago, and the
    frequencies of plays in these conditions by level. A channel that is not played ages by one slot, up to the largest
    age.
    """
    K, S, A, _ = channels.beliefs.shape
    L = channels.pay.shape[1]
    met = np.arange(K * S * A).reshape(K, S, A)
    play = K * S * A + np.arange(K * S * A * L).reshape(K, S, A, L)
    equal: list[tuple[int, int, float]] = []  # row, column, entry
    at_most: list[tuple[int, int, float]] = []
    for k, s, a in np.ndindex(K, S, A):
        row = int(met[k, s, a])  # inflow equals outflow
        equal.append((row, row, 1.0))
        if a == 0:
            for before, age in np.ndindex(S, A):
                probability = channels.beliefs[k, before, age, s]
                equal += [(row, int(play[k, before, age, level]), -probability) for level in range(L)]
        for age in {a - 1, a} if a == A - 1 else {a - 1}:
            if age >= 0:
                equal.append((row, int(met[k, s, age]), -1.0))
                equal += [(row, int(play[k, s, age, level]), 1.0) for level in range(L)]
        for level in range(L):  # plays at a level are at most its frequency
            row = int(play[k, s, a, level]) - K * S * A
            at_most += [(row, row + K * S * A, 1.0), (row, int(met[k, s, a]), -channels.probability[k, level])]
    flows = K * S * A
    equal += [(flows + k, int(column), 1.0) for k in range(K) for column in met[k].ravel()]
    equal += [(flows + K, int(column), 1.0) for column in play.ravel()]
    size = K * S * A * (1 + L)
    cost = np.concatenate([np.zeros(flows), -np.einsum("ksaj,klj->ksal", channels.beliefs, channels.pay).ravel()])
    solved = linprog(
        cost,
        A_eq=sparse(equal, (flows + K + 1, size)),
        b_eq=[0.0] * flows + [1.0] * K + [plays],
        A_ub=sparse(at_most, (K * S * A * L, size)),
        b_ub=np.zeros(K * S * A * L),
        method="highs",
    )
    assert solved.success
    return -float(solved.fun)


def sparse(entries: list[tuple[int, int, float]], shape: tuple[int, int]) -> coo_matrix:
    """Return a sparse matrix of (row, column, value) entries."""
    rows, columns, values = zip(*entries, strict=True)
    return coo_matrix((values, (rows, columns)), shape)  # entries at the same position are added


def preset(name: str, ages: int | None = None, **changes: object) -> Channels:
    """Return the channels of a preset with changed settings."""
    scenario = ib.scenario(name, **changes)
    _, probability, pay = levels(scenario, scenario.theta(0, 0))
    return whittle_lagrangian.channels(padded_transition(scenario), pay, probability, ages)


def random_channels(seed: int, K: int, S: int, L: int, ages: int) -> Channels:
    """Return K random channels with S states and L perturbation levels."""
    rng = np.random.default_rng(seed)
    return whittle_lagrangian.channels(
        rng.dirichlet(np.ones(S), (K, S)), rng.random((K, L, S)), rng.dirichlet(np.ones(L), K), ages
    )


def gains(channels: Channels, charges: Floats) -> Floats:
    """Return the gain of each channel at each charge, (K, C)."""
    K, S, A, _ = channels.beliefs.shape
    L = channels.pay.shape[1]
    found = np.zeros((K, charges.size))
    whittle_lagrangian.sweep(
        channels, charges, whittle_lagrangian.new_work(S, A, L), found, np.zeros((S, A, L)), np.zeros((0, 0, 0, 0))
    )
    return found


# --- the upper bound -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("perturbation", ["none", "linear"])
@pytest.mark.parametrize("name", PRESETS)
def test_bound_is_the_value_of_the_linear_program(name: str, perturbation: str) -> None:
    channels = preset(name, 30, perturbation=perturbation)
    exact = program(channels, 5.0)
    assert abs(whittle_lagrangian.bound(channels, 5.0, 0.1, 1.0) - exact) < 1e-6


@pytest.mark.parametrize("plays", [0.5, 1.0, 2.0])
def test_bound_of_random_channels_is_the_value_of_the_linear_program(plays: float) -> None:
    """Random channels with three states and two perturbation levels; the number of plays need not be whole."""
    channels = random_channels(0, 3, 3, 2, 12)
    assert abs(whittle_lagrangian.bound(channels, plays, 0.0, 1.0) - program(channels, plays)) < 1e-6


@pytest.mark.parametrize(("name", "value"), [("S1", 4.066), ("S2", 3.650), ("S3", 3.956), ("S4", 4.046)])
def test_bounds_of_the_presets(name: str, value: float) -> None:
    """Five of ten channels without perturbation; ages above 60 slots change the bound by less than 1e-3."""
    found = [
        whittle_lagrangian.bound(preset(name, ages, perturbation="none"), 5.0, 0.1, 1.0) for ages in (None, 60, 150)
    ]
    assert abs(found[0] - value) < 5e-4
    assert abs(found[1] - found[2]) < 1e-3
    assert abs(found[0] - found[2]) < 1e-3


@pytest.mark.parametrize("name", PRESETS)
def test_bound_increases_with_plays_between_static_reference_and_genie(name: str) -> None:
    """The static reference is the reward of one policy, and the genie has more information than any policy."""
    channels, rng = preset(name, 60, perturbation="none"), np.random.default_rng(0)
    P = channels.beliefs[:, :, 0]
    good = np.array([stationary(p)[1] for p in P])
    seen = rng.random((100_000, 10)) < good
    last = 0.0
    for plays in (1, 3, 5, 8, 10):
        bound = whittle_lagrangian.bound(channels, float(plays), 0.1, 1.0)
        genie = 0.1 * plays + 0.9 * np.minimum(seen.sum(axis=1), plays)
        assert last < bound
        assert np.sort(0.1 + 0.9 * good)[-plays:].sum() < bound + 1e-9
        assert bound < genie.mean() + 5 * genie.std() / np.sqrt(len(genie))
        last = bound
    assert abs(last - (0.1 + 0.9 * good).sum()) < 1e-6  # all channels in every slot


def test_bound_of_periodic_channels_is_their_number_of_good_slots() -> None:
    """One observation of a periodic channel determines all later states, so that all good slots can be used.

    This holds whether or not the period divides the largest age.
    """
    for period, good, K in ((2, [1], 2), (3, [2], 3), (4, [1, 3], 3), (6, [2, 5], 4)):
        P = np.tile(np.roll(np.eye(period), 1, axis=1), (K, 1, 1))
        pay = np.zeros((K, 1, period))
        pay[:, :, good] = 1.0
        for ages in (None, 100, 101):
            channels = whittle_lagrangian.channels(P, pay, np.ones((K, 1)), ages)
            share = len(good) / period
            for plays in (0.5 * share, 1.0):
                assert abs(whittle_lagrangian.bound(channels, plays, 0.0, 1.0) - min(plays, share * K)) < 1e-6


# --- one channel -----------------------------------------------------------------------------------------------------


def one(p01: float, p10: float, ages: int | None = None) -> Channels:
    """Return one Gilbert-Elliott channel with rewards 0 and 1."""
    return whittle_lagrangian.channels(gilbert_elliott(p01, p10)[None], np.array([[[0.0, 1.0]]]), np.ones((1, 1)), ages)


CHARGES = np.linspace(0.0, 1.0, 21)


def test_gains_of_worked_examples() -> None:
    """An alternating channel is played in every second slot; with independent slots the mean and the charge decide.

    A channel that is good with probability 1/2 after a bad slot and never after a good one is played two slots after a
    good one and one slot after a bad one, both times at belief 1/2.
    """
    np.testing.assert_allclose(gains(one(1.0, 1.0), CHARGES)[0], (1 - CHARGES) / 2, atol=1e-9)
    np.testing.assert_allclose(gains(one(0.3, 0.7), CHARGES)[0], np.maximum(0.3 - CHARGES, 0), atol=1e-9)
    resting = np.maximum((1 - 2 * CHARGES) / 3, 0)
    np.testing.assert_allclose(gains(one(0.5, 1.0, 40), CHARGES)[0], resting, atol=1e-9)


def test_gain_with_perturbation_levels_in_a_worked_example() -> None:
    """With independent slots a channel is played at the levels at which its mean reward exceeds the charge."""
    channels = whittle_lagrangian.channels(
        np.full((1, 2, 2), 0.5), np.array([[[1.0, 1.0], [0.0, 1.0]]]), np.array([[0.2, 0.8]])
    )
    expected = 0.2 * np.maximum(1 - CHARGES, 0) + 0.8 * np.maximum(0.5 - CHARGES, 0)
    np.testing.assert_allclose(gains(channels, CHARGES)[0], expected, atol=1e-9)


def test_policy_iteration_does_not_depend_on_the_start() -> None:
    """The gain at each charge is the same alone and after all smaller charges."""
    for channels in (one(0.01, 0.02, 100), one(0.97, 0.98, 100), random_channels(1, 1, 4, 3, 30)):
        alone = [gains(channels, np.array([charge]))[0, 0] for charge in CHARGES]
        np.testing.assert_allclose(gains(channels, CHARGES)[0], alone, atol=1e-9)


def test_policy_iteration_ends_after_few_rounds() -> None:
    """Fewer than 20 rounds suffice, even at charges at which playing and waiting are equally good."""
    for name in PRESETS:
        channels = preset(name)
        K, S, A, _ = channels.beliefs.shape
        work = whittle_lagrangian.new_work(S, A, 3)
        for k in range(K):
            for charge in (0.1, 0.19, 0.55, 0.919):
                whittle_lagrangian.set_plays(work, True)
                for rounds in range(1, 21):  # noqa: B007
                    gain = whittle_lagrangian.evaluate(channels, k, charge, work, True)
                    if not whittle_lagrangian.improve(channels, k, charge, work, gain, True):
                        break
                assert rounds < 20, (name, k, charge)


@pytest.mark.parametrize("name", PRESETS)
def test_whittle_index_equals_the_closed_form(name: str) -> None:
    """Rewards are 0.1 or 1; without perturbation only the middle one of three levels occurs.

    The tolerance is one step between charges, because the advantage of playing falls more slowly above the index.
    """
    channels, probabilities = preset(name, perturbation="none"), PRESETS[name]
    for points, within in ((257, 0.9 / 256), (1025, 1e-3)):
        index = whittle_lagrangian.whittle(channels, 0.1, 1.0, points)[:, :, :40, 1]
        for (k, s, a), found in np.ndenumerate(index):
            exact = 0.1 + 0.9 * whittle(probabilities.p01[k], probabilities.p10[k], channels.beliefs[k, s, a, 1])
            assert abs(found - exact) < within, (k, s, a)


def advantages(channels: Channels, charges: Floats, slots: int) -> Floats:
    """Return the value of playing channel 0 now minus that of waiting, (C, S, A, L), this many slots before the end."""
    beliefs, probability = channels.beliefs[0], channels.probability[0]
    reward = np.einsum("saj,lj->sal", beliefs, channels.pay[0])
    value = np.zeros((charges.size, *beliefs.shape[:2]))
    for _ in range(slots):
        later = np.concatenate([value[:, :, 1:], value[:, :, -1:]], axis=2)[..., None]
        shown = np.einsum("saj,cj->csa", beliefs, value[:, :, 0])[..., None]
        play = reward - charges[:, None, None, None] + shown
        value = 0.5 * value + 0.5 * (np.maximum(play, later) @ probability)  # damped, so that values do not oscillate
    return play - later


@pytest.mark.parametrize("seed", range(4))
def test_whittle_index_of_random_channels_agrees_with_value_iteration(seed: int) -> None:
    """With three states and two levels, playing is better than waiting where the index is a step above a charge.

    It is worse where the index is a step below. Values are those of 1200 slots before the end; these chains mix within
    about ten slots.
    """
    channels, charges = random_channels(seed, 1, 3, 2, 12), np.linspace(0.02, 0.98, 33)
    index = whittle_lagrangian.whittle(channels, 0.0, 1.0)
    gained = advantages(channels, charges, 1200)
    above = index[0] - charges[:, None, None, None]
    assert (gained[above > 1 / 256] > 0).all()
    assert (gained[above < -1 / 256] < 0).all()
    assert 0.1 < (above > 0).mean() < 0.9


def test_indices_are_clipped_to_the_range() -> None:
    index = whittle_lagrangian.whittle(random_channels(0, 2, 3, 2, 12), 0.4, 0.6)
    assert (index.min(), index.max()) == (0.4, 0.6)
    assert ((index > 0.4) & (index < 0.6)).any()


def test_number_of_ages_until_an_observation_has_no_effect() -> None:
    """Ages extend until the effect of an observation is below 1e-5, within limits.

    Periodic channels reach the limit, and padded states do not count.
    """
    for p01, p10, ages in ((0.5, 0.5, 2), (0.2, 0.3, 17), (0.7, 0.8, 17), (1e-6, 1e-6, 4000), (1.0, 1.0, 4000)):
        P = gilbert_elliott(p01, p10)
        wide = np.zeros((2, 3, 3))
        wide[:, :2, :2] = P
        assert whittle_lagrangian.ages_to_forget(P[None]) == whittle_lagrangian.ages_to_forget(wide) == ages
    assert whittle_lagrangian.ages_to_forget(np.stack([gilbert_elliott(0.5, 0.5), gilbert_elliott(0.2, 0.3)])) == 17


def test_padded_states_change_nothing() -> None:
    P, pay, probability = gilbert_elliott(0.1, 0.2), np.array([[[0.2, 0.9], [0.1, 0.3]]]), np.array([[0.6, 0.4]])
    wide_P, wide_pay = np.zeros((1, 4, 4)), np.zeros((1, 2, 4))
    wide_P[0, :2, :2], wide_pay[:, :, :2] = P, pay
    narrow = whittle_lagrangian.channels(P[None], pay, probability, 30)
    wide = whittle_lagrangian.channels(wide_P, wide_pay, probability, 30)
    np.testing.assert_allclose(gains(wide, CHARGES), gains(narrow, CHARGES), atol=1e-12)
    found = whittle_lagrangian.whittle(wide, 0.0, 1.0)[:, :2]
    np.testing.assert_allclose(found, whittle_lagrangian.whittle(narrow, 0.0, 1.0), atol=1e-9)


SMALL_EXAMPLE = """
import numpy as np
from idleband.kernels import whittle_lagrangian
rng = np.random.default_rng(5)
channels = whittle_lagrangian.channels(
    rng.dirichlet(np.ones(2), (2, 2)), rng.random((2, 2, 2)), rng.dirichlet(np.ones(2), 2), 4
)
index = whittle_lagrangian.whittle(channels, 0.0, 1.0, 9).ravel()
print(whittle_lagrangian.bound(channels, 1.0, 0.0, 1.0).hex(), *(x.hex() for x in index.tolist()))
"""


def test_compiled_and_interpreted_results_are_identical() -> None:
    printed = [
        subprocess.run(
            [sys.executable, "-c", SMALL_EXAMPLE],
            env={**os.environ, "NUMBA_DISABLE_JIT": disable},
            capture_output=True, text=True, check=True, timeout=120,
        ).stdout
        for disable in ("0", "1")
    ]  # fmt: skip
    assert printed[0] == printed[1]
    assert len(printed[0].split()) == 1 + 2 * 2 * 4 * 2
