"""The problem of `kernels.value_iteration` for the channels of a scenario, with truncated ages."""

import math
from itertools import combinations, product
from typing import NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.errors import InputError
from idleband.kernels.value_iteration import Problem
from idleband.scenario.level_brackets import Bracket, Levels
from idleband.scenario.scenario import Scenario

MAX_AGE = 20_000  # at which an observation may still be of influence
ROUNDING = 1e-14  # of a belief


class Memory(NamedTuple):
    """What may be known of one channel: its beliefs, as `kernels.value_iteration` lists them."""

    beliefs: Floats  # (B, S)
    later: Ints  # (B,) counted from 0 after the first S
    kept: Ints  # (S,) number of beliefs two and more slots after each state
    doubt: float  # of the last belief

    @property
    def waiting(self) -> int:
        """Number of beliefs of a channel that was not played in the last slot."""
        return len(self.beliefs) - len(self.kept)

    def place(self, state: int | None, age: int) -> int:
        """Return the belief that stands for a state that was observed `age` slots ago; None: never observed."""
        if state is None or age - 2 >= self.kept[state]:
            return len(self.beliefs) - 1
        if age == 1:
            return state
        return len(self.kept) + int(self.kept[:state].sum()) + age - 2


def memories(scenario: Scenario, forgotten: float) -> list[Memory]:
    """Return the memory of each channel; beliefs within `forgotten` of the stationary distribution become this one."""
    chains = zip(scenario.transition, scenario.stationary_distributions, strict=True)
    return [_memory(k, P, stationary, forgotten) for k, (P, stationary) in enumerate(chains)]


def _memory(k: int, P: Floats, stationary: Floats, forgotten: float) -> Memory:
    after: list[Floats] = []
    kept, doubt = [], 0.0
    for row in P:
        belief, count = row @ P, 0
        while (distance := 0.5 * float(np.abs(belief - stationary).sum())) > forgotten:
            after.append(belief)
            belief, count = belief @ P, count + 1
            if count > MAX_AGE:
                raise InputError(
                    f"scenario, channel {k}: an observation has influence for more than {MAX_AGE} slots, because the"
                    " chain is periodic or very slow; the optimum is not computed for such a channel"
                )
        kept.append(count)
        doubt = max(doubt, distance if distance > ROUNDING else 0.0)
    S, last, begin = len(P), len(after), 0
    later = np.full(S + last + 1, last)
    for s, count in enumerate(kept):
        if count:
            later[s] = begin
            later[S + begin : S + begin + count - 1] = np.arange(begin + 1, begin + count)
        begin += count
    return Memory(np.array([*P, *after, stationary]), later, np.array(kept), doubt)


def problem_size(memory: list[Memory], levels: Bracket, M: int) -> tuple[int, int]:
    """Return the number of states, and how many terms a sweep adds up: a measure of its time and memory."""
    states, outcomes = [1] + [0] * M, [1] + [0] * M  # by the number of channels that were played
    for one in memory:
        S = len(one.kept)
        for m in range(M, -1, -1):
            states[m] = states[m] * one.waiting + (states[m - 1] * S if m else 0)
            outcomes[m] += outcomes[m - 1] * S if m else 0
    combined = max(math.prod(int((q > 0.0).sum()) for q in one.probability) for one in (levels.lower, levels.upper))
    table = sum(len(one.beliefs) for one in memory) * combined
    return states[M], max(states[M] * (outcomes[M] + math.comb(len(memory), M) * combined), 4 * table)


def belief_problem(memory: list[Memory], levels: Levels, M: int, sign: float) -> Problem:
    """Return the problem for one distribution of the levels and one sign of the doubt."""
    K = len(memory)
    sizes = np.array([len(one.kept) for one in memory])
    counts = np.array([one.waiting for one in memory])
    reached = [np.flatnonzero(q > 0.0).tolist() for q in levels.probability]
    combined = np.array(list(product(*reached)))  # (Q, K) level of each channel
    B = max(len(one.beliefs) for one in memory)
    beliefs, doubt, later = np.zeros((K, B, sizes.max())), np.zeros((K, B)), np.zeros((K, B), np.int64)
    rewards = np.zeros((K, B, len(combined)))
    for k, one in enumerate(memory):
        rows, pay = len(one.beliefs), levels.pay[k, :, : sizes[k]]
        beliefs[k, :rows, : sizes[k]] = one.beliefs
        later[k, :rows] = one.later
        doubt[k, rows - 1] = one.doubt
        by_level = one.beliefs @ pay.T
        by_level[-1] += sign * one.doubt * np.ptp(pay, axis=1)
        rewards[k, :rows] = by_level[:, combined[:, k]]
    sets = np.array(list(combinations(range(K), M)))
    others = np.array([[k for k in range(K) if k not in row] for row in sets], np.int64).reshape(len(sets), K - M)
    blocks = np.array([math.prod(counts[row].tolist()) for row in others])
    states = np.array([math.prod(sizes[row].tolist()) for row in sets]) * blocks
    return Problem(
        sizes=sizes, counts=counts, beliefs=beliefs, doubt=doubt, later=later, rewards=rewards, sets=sets,
        others=others, first=np.concatenate([[0], np.cumsum(states)]), blocks=blocks,
        weights=np.prod(levels.probability[np.arange(K), combined], axis=1), sign=sign,
    )  # fmt: skip


def carried_over(problem: Problem, memory: list[Memory], h: Floats, refined: list[Memory]) -> Floats:
    """Return the values of a coarser truncation at the states of a finer one, whose problem is given."""
    places = [_places(coarse, fine) for coarse, fine in zip(memory, refined, strict=True)]
    parts: list[Floats] = []
    begin = 0
    for played, waiting in zip(problem.sets, problem.others, strict=True):
        shown = problem.sizes[played].tolist()
        shape = [*shown, *(memory[k].waiting for k in waiting)]
        end = begin + math.prod(shape)
        where = np.ix_(*map(np.arange, shown), *(places[k] for k in waiting))
        parts.append(h[begin:end].reshape(shape)[where].ravel())
        begin = end
    return np.concatenate(parts)


def _places(coarse: Memory, fine: Memory) -> Ints:
    """Return the coarser belief for each finer one of a channel that was not played in the last slot."""
    S = len(coarse.kept)
    found = [coarse.place(s, age) - S for s in range(S) for age in range(2, int(fine.kept[s]) + 2)]
    return np.array([*found, coarse.waiting - 1])
