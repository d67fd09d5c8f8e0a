"""The closed form of the Whittle index compared with an exhaustive search over policies."""

import math
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from idleband.kernels.whittle import whittle

Floats = npt.NDArray[np.float64]

CHANNELS = {
    "slow": (0.02, 0.07, 300),
    "slow and mostly good": (0.04, 0.01, 300),
    "nearly frozen": (0.004, 0.006, 700),
    "correlated": (0.2, 0.3, 60),
    "nearly independent": (0.42, 0.55, 30),
    "independent": (0.4, 0.6, 30),
    "nearly independent, below": (0.45, 0.58, 30),
    "negative": (0.7, 0.6, 60),
    "negative and mostly bad": (0.5, 0.95, 60),
    "nearly periodic": (0.97, 0.98, 200),
}  # p01, p10, and the number of slots after which an observation has no effect


def orbit(p01: float, p10: float, w: float, slots: int) -> Floats:
    """Return the beliefs of a channel that is not played, starting at w."""
    w0, rho = p01 / (p01 + p10), 1 - p01 - p10
    return w0 + (w - w0) * rho ** np.arange(slots)


class ExhaustiveSearch:
    """One channel with a charge per play, solved by exhaustive search.

    After a play the state is observed, so that a policy is a pair of waiting times: one after a bad state and one after
    a good state. Renewal theory gives the reward per slot of each pair.
    """

    def __init__(self, p01: float, p10: float, slots: int) -> None:
        self.p01, self.p10, self.slots = p01, p10, slots
        self.length = np.arange(1.0, slots + 1)  # of a cycle, including the play
        self.bad = orbit(p01, p10, p01, slots)
        self.good = orbit(p01, p10, 1 - p10, slots)
        # Shares of plays after a bad and after a good state.
        share_bad, share_good = 1 - self.good[None, :], self.bad[:, None]
        time = share_bad * self.length[:, None] + share_good * self.length[None, :]
        self.earned = (share_bad * self.bad[:, None] + share_good * self.good[None, :]) / time  # per slot
        self.played = (share_bad + share_good) / time

    def advantage(self, w: float, charge: float) -> float:
        """Return the value of playing now at belief w minus that of the best waiting time."""
        net = self.earned - charge * self.played
        gain = max(0.0, float(net.max()))
        if gain > 0:  # the value of a good state is set to 0
            i = net.argmax() // self.slots
            bad = (self.bad[i] - charge - gain * self.length[i]) / self.bad[i]
            good, never = 0.0, -math.inf
        else:  # the best policy stops playing; values are the rewards until then
            bad = max(0.0, float(((self.bad - charge) / self.bad).max()))
            good = max(0.0, float(((self.good - charge) / (1 - self.good)).max()))
            never = 0.0
        belief = orbit(self.p01, self.p10, w, self.slots)
        value = belief - charge + belief * good + (1 - belief) * bad - gain * self.length
        return float(value[0] - max(never, float(value[1:].max())))

    def index(self, w: float) -> float:
        """Return the charge at which playing and waiting are equally good, by bisection."""
        low, high = 0.0, 1.0
        while high - low > 1e-4:
            charge = 0.5 * (low + high)
            if self.advantage(w, charge) > 0:
                low = charge
            else:
                high = charge
        return 0.5 * (low + high)


def corners(p01: float, p10: float) -> list[float]:
    """Return the beliefs at which the formula changes, in increasing order."""
    low, high = min(p01, 1 - p10), max(p01, 1 - p10)
    first = orbit(p01, p10, p01, 6) if p01 < 1 - p10 else orbit(p01, p10, 1 - p10, 2)
    return sorted({0.0, low, p01 / (p01 + p10), high, 1.0, *first.tolist()})


@pytest.mark.parametrize("name", CHANNELS)
def test_index_is_the_charge_at_which_playing_and_waiting_are_equal(name: str) -> None:
    """Checked at the corners of the formula and between them, within 1e-3 (the search ends at 1e-4)."""
    p01, p10, slots = CHANNELS[name]
    search, edges = ExhaustiveSearch(p01, p10, slots), corners(p01, p10)
    beliefs = [*edges, *(0.5 * (a + b) for a, b in pairwise(edges))]
    for w in beliefs:
        assert abs(whittle(p01, p10, w) - search.index(w)) < 1e-3, w


def test_index_of_a_worked_example() -> None:
    """A channel is never good twice in succession, and good with probability 1/2 after a bad slot.

    The best policy plays in the next slot after a bad one and two slots after a good one, both times at belief 1/2. It
    earns g = (1 - 2 c) / 3 per slot at charge c; the relative value of a good state is 0 and that of a bad one g. At
    belief 1/4, playing now has value 1/4 - c + 3/4 g - g, and playing one slot later, at belief 3/8, has value
    3/8 - c + 5/8 g - 2 g. They are equal if 1/8 = 9/8 g.
    """
    assert abs(whittle(0.5, 1.0, 0.25) - (1 - 3 / 9) / 2) < 1e-12
    assert whittle(0.5, 1.0, 0.5) == 0.5


PROBABILITIES = st.floats(0.005, 0.995)


@given(PROBABILITIES, PROBABILITIES, st.floats(0, 1), st.floats(0, 1))
def test_index_is_at_least_the_belief_and_increasing(p01: float, p10: float, w: float, v: float) -> None:
    low, high = sorted((w, v))
    assert low - 1e-12 <= whittle(p01, p10, low) <= whittle(p01, p10, high) + 1e-12 <= 1 + 2e-12


@given(PROBABILITIES, PROBABILITIES)
def test_index_is_continuous(p01: float, p10: float) -> None:
    """Checked on both sides of every corner. Slopes are at most about 1 / (2 w0)^2, below 10^4 here."""
    for w in corners(p01, p10):
        for side in (-1e-9, 1e-9):
            assert abs(whittle(p01, p10, min(1.0, max(0.0, w + side))) - whittle(p01, p10, w)) < 2e-5, w


@given(st.floats(0, 1), st.floats(0, 1))
def test_index_of_independent_slots_is_the_belief(p01: float, w: float) -> None:
    assert abs(whittle(p01, 1 - p01, w) - w) < 1e-9 or abs(w - p01) < 1e-9


@pytest.mark.parametrize("p01", [0.0, 1e-12, 1e-9, 1e-6, 0.5, 1 - 1e-6, 1.0])
@pytest.mark.parametrize("p10", [0.0, 1e-12, 1e-9, 1e-6, 0.5, 1 - 1e-6, 1.0])
def test_index_with_extreme_probabilities_is_between_belief_and_one(p01: float, p10: float) -> None:
    if p01 == p10 == 0.0:
        return
    w0 = p01 / (p01 + p10)
    for w in (0.0, 1e-9, 1e-6, 0.3, w0, np.nextafter(w0, 0), np.nextafter(w0, 1), 0.7, 1 - 1e-9, 1.0):
        assert w - 1e-9 <= whittle(p01, p10, float(w)) <= 1.0


def test_index_of_a_periodic_channel_is_its_belief_where_certain() -> None:
    assert [whittle(1.0, 1.0, w) for w in (0.0, 1.0)] == [0.0, 1.0]
    assert whittle(1.0, 1.0, 0.5) == 1.0  # one observation determines all later states
