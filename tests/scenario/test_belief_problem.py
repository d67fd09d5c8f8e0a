"""What may be known of a channel, and the size of the problem that follows."""

import itertools

import numpy as np
import pytest

import idleband as ib
from idleband.kernels.value_iteration import iterate
from idleband.scenario.belief_problem import Memory, belief_problem, carried_over, memories, problem_size
from idleband.scenario.level_brackets import bracket
from idleband.scenario.markov import stationary

SCENARIO = ib.scenario(
    transition=[
        [[0.5, 0.4, 0.1], [0.3, 0.4, 0.3], [0.2, 0.3, 0.5]],
        [[0.6, 0.4], [0.1, 0.9]],
        [[0.3, 0.7], [0.3, 0.7]],
    ],
    good=[[2], [1], [1]],
    users=2,
    perturbation={"clear": 0.7},
)


@pytest.mark.parametrize("forgotten", [0.09, 0.01, 1e-4])
def test_beliefs_are_rows_of_powers_or_forgotten(forgotten: float) -> None:
    """Following a channel that is not played finds row s of P^a, until it is close to the stationary distribution."""
    for memory, P in zip(memories(SCENARIO, forgotten), SCENARIO.transition, strict=True):
        S, last = len(P), stationary(P)
        np.testing.assert_allclose(memory.beliefs[-1], last)
        for s in range(S):
            at = s
            for age in range(1, 40):
                exact = np.linalg.matrix_power(P, age)[s]
                distance = 0.5 * np.abs(exact - memory.beliefs[at]).sum()
                assert memory.place(s, age) == at
                assert distance <= (memory.doubt if at == len(memory.beliefs) - 1 else 0.0) + 1e-12
                assert (at == len(memory.beliefs) - 1) == (age > 1 and 0.5 * np.abs(exact - last).sum() <= forgotten)
                at = S + int(memory.later[at])
        assert memory.doubt <= forgotten
        assert memory.place(None, 1) == len(memory.beliefs) - 1


def test_memoryless_channel_has_nothing_to_remember() -> None:
    memory = memories(SCENARIO, 1e-4)[2]
    assert (memory.waiting, memory.doubt, memory.kept.tolist()) == (1, 0.0, [0, 0])


def test_size_counts_states_and_sets() -> None:
    memory, levels = memories(SCENARIO, 0.01), bracket(SCENARIO, SCENARIO.theta(0, 0), 4)
    problem = belief_problem(memory, levels.lower, 2, -1.0)
    waiting = [one.waiting for one in memory]
    states = 3 * 2 * waiting[2] + 3 * 2 * waiting[1] + 2 * 2 * waiting[0]
    assert problem_size(memory, levels, 2) == (states, states * (6 + 6 + 4 + 3 * 2**3))
    assert problem.first.tolist()[-1] == states
    assert problem.weights.sum() == pytest.approx(1.0)
    assert len(problem.weights) == 2**3  # n < 0 does not occur


def test_values_carried_over_belong_to_the_same_knowledge() -> None:
    """Each state of the finer problem has the value of the coarser one with the same states and ages."""
    coarse, fine = memories(SCENARIO, 0.05), memories(SCENARIO, 1e-3)
    levels = bracket(SCENARIO, SCENARIO.theta(0, 0), 4).lower
    before, problem = (belief_problem(memory, levels, 2, -1.0) for memory in (coarse, fine))
    h = np.arange(float(before.first[-1]))
    found = carried_over(problem, coarse, h, fine)
    knowledge = [(s, age) for s in range(3) for age in range(1, 12)]
    for a, b, c in itertools.product(knowledge[::5], knowledge[:22:3], knowledge[:2]):
        for played in ((0, 1), (0, 2), (1, 2)):
            known = [(s, 1 if k in played else max(age, 2)) for k, (s, age) in enumerate((a, b, c))]
            if all(s < len(P) for (s, _), P in zip(known, SCENARIO.transition, strict=True)):
                assert found[number(problem, fine, played, known)] == h[number(before, coarse, played, known)]


def number(problem, memory: list[Memory], played: tuple[int, ...], known: list[tuple[int, int]]) -> int:  # type: ignore[no-untyped-def]
    """Return the number of a state: the set, the states that it showed, and the beliefs of the other channels."""
    c = problem.sets.tolist().index(list(played))
    found = 0
    for k in played:
        found = found * len(memory[k].kept) + known[k][0]
    for k in range(3):
        if k not in played:
            found = found * memory[k].waiting + memory[k].place(*known[k]) - len(memory[k].kept)
    return int(problem.first[c]) + found


def test_a_finer_truncation_narrows_the_bounds() -> None:
    widths = []
    for forgotten in (0.1, 0.01, 1e-3, 1e-4):
        memory, levels = memories(SCENARIO, forgotten), bracket(SCENARIO, SCENARIO.theta(0, 0), 4)
        terms = problem_size(memory, levels, 2)[1]
        ends = []
        for sign in (-1.0, 1.0):
            problem = belief_problem(memory, levels.lower, 2, sign)
            solved = iterate(problem, np.zeros(int(problem.first[-1])), 1e-9, terms, 1000)
            assert solved.high - solved.low <= 1e-9
            ends.append(solved.low)
        widths.append(ends[1] - ends[0])
    assert all(b < a / 4 for a, b in itertools.pairwise(widths))
    assert widths[-1] < 1e-4
