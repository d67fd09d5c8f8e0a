"""One sweep compared with the sum that defines it, and the acceleration with the plain iteration."""

import itertools
import math

import numpy as np
import pytest

import idleband as ib
from idleband.kernels.value_iteration import Acceleration, Problem, compiled_sweep, iterate, new_work
from idleband.scenario.belief_problem import belief_problem, memories, problem_size
from idleband.scenario.level_brackets import bracket

SCENARIO = ib.scenario(
    transition=[
        [[0.5, 0.4, 0.1], [0.3, 0.4, 0.3], [0.2, 0.3, 0.5]],
        [[0.6, 0.4], [0.1, 0.9]],
        [[0.8, 0.2], [0.3, 0.7]],
    ],
    good=[[2], [1], [1]],
    users=2,
    perturbation={"clear": 0.7},
)


def problem(sign: float, forgotten: float = 0.1) -> tuple[Problem, int]:
    """Return a problem of three channels, and its terms."""
    memory, levels = memories(SCENARIO, forgotten), bracket(SCENARIO, SCENARIO.theta(0, 0), 4)
    return belief_problem(memory, levels.lower, 2, sign), problem_size(memory, levels, 2)[1]


def states(given: Problem) -> list[tuple[int, ...]]:
    """Return the beliefs of all channels in every state, in the order of the states."""
    found = []
    for chosen, others in zip(given.sets.tolist(), given.others.tolist(), strict=True):
        shown = [range(given.sizes[k]) for k in chosen]
        waiting = [range(given.sizes[k], given.sizes[k] + given.counts[k]) for k in others]
        for row in itertools.product(*shown, *waiting):
            at = dict(zip(chosen + others, row, strict=True))
            found.append(tuple(at[k] for k in range(3)))
    return found


def swept(given: Problem, h: np.ndarray) -> list[float]:
    """Return T h from its definition in the docstring of the module."""
    numbers = {at: x for x, at in enumerate(states(given))}  # which set was played follows from the beliefs
    assert len(numbers) == len(h)
    found = []
    for at in numbers:
        ahead = []
        for chosen in given.sets.tolist():

            def after(shown: dict[int, int], at: tuple[int, ...] = at) -> float:
                moved = (int(given.sizes[k] + given.later[k, at[k]]) if k not in shown else shown[k] for k in range(3))
                return float(h[numbers[tuple(moved)]])

            def mean(left: list[int], shown: dict[int, int], at: tuple[int, ...] = at) -> float:
                if not left:
                    return after(shown)
                k, b = left[0], at[left[0]]
                values = [mean(left[1:], {**shown, k: j}) for j in range(given.sizes[k])]
                doubt = given.doubt[k, b] * (max(values) - min(values))
                return math.fsum(given.beliefs[k, b, j] * v for j, v in enumerate(values)) + given.sign * doubt

            ahead.append(mean(chosen, {}))
        found.append(
            sum(
                weight
                * max(v + sum(given.rewards[k, at[k], q] for k in c) for v, c in zip(ahead, given.sets, strict=True))
                for q, weight in enumerate(given.weights)
            )
        )
    return found


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_a_sweep_is_what_it_is_defined_as(sign: float) -> None:
    given, _ = problem(sign)
    assert given.doubt.max() > 0.01
    h = np.random.default_rng(0).random(int(given.first[-1]))
    out, work = np.zeros(len(h)), new_work(given)
    work.ends[:] = np.inf, -np.inf
    compiled_sweep()(given, work, h, out, 0, 10)
    compiled_sweep()(given, work, h, out, 10, len(h))
    np.testing.assert_allclose(out, swept(given, h), atol=1e-12)
    assert work.ends.tolist() == [(out - h).min(), (out - h).max()]


def test_rewards_of_a_doubtful_belief_include_the_doubt() -> None:
    """At the level at which good states pay 1 and others 0.1, the doubt changes the mean by 0.9 times its size."""
    low, high = problem(-1.0)[0], problem(1.0)[0]
    for k in range(3):
        last = int(low.sizes[k] + low.counts[k]) - 1
        change = (high.rewards[k, last] - low.rewards[k, last]) / (2 * low.doubt[k, last])
        assert set(change.round(9)) == {0.0, 0.9}
        assert (high.rewards[k, :last] == low.rewards[k, :last]).all()


def test_the_accelerated_iteration_finds_the_same_gain_in_fewer_sweeps() -> None:
    given, terms = problem(-1.0, 1e-3)
    fast = iterate(given, np.zeros(int(given.first[-1])), 1e-8, terms, 10_000)
    work, h, sweeps = new_work(given), np.zeros(int(given.first[-1])), 0
    out = h.copy()
    while work.ends[1] - work.ends[0] > 1e-8 or sweeps == 0:
        work.ends[:] = np.inf, -np.inf
        h = out - out[0]
        compiled_sweep()(given, work, h, out, 0, len(h))
        sweeps += 1
    assert fast.high - fast.low <= 1e-8
    assert abs(fast.low - work.ends[0]) < 1e-7
    assert fast.sweeps < sweeps


def test_iteration_ends_at_the_largest_number_of_sweeps() -> None:
    given, terms = problem(-1.0)
    found = iterate(given, np.zeros(int(given.first[-1])), 1e-9, terms, 3)
    assert found.sweeps == 3
    assert found.high - found.low > 1e-9


def test_acceleration_solves_a_linear_iteration() -> None:
    """After as many steps as there are dimensions, the fixed point of h -> A h + b is found up to a constant."""
    rng = np.random.default_rng(3)
    A, b = rng.dirichlet(np.ones(5), 5), rng.random(5)  # the fixed point up to a constant: h = A h + b - gain
    acceleration, h = Acceleration(5), np.zeros(5)
    for _ in range(9):
        h = acceleration.following(h, A @ h + b - h)
    assert np.ptp(A @ h + b - h) < 1e-6
