"""Sensing errors: probabilities of what is observed given whether a channel is idle, and the reverse.

Error rates are `setup.missed`, P(observed idle | busy), and `setup.false_alarm`, P(observed busy | idle).
"""

from idleband.kernels.compile import jit
from idleband.kernels.two_state_chain import Sensing, given, with_errors
from idleband.policies.protocol import Setup


@jit
def sensing_of(setup: Setup, k: int) -> Sensing:
    """Return P(observed 1 | state 0) and P(observed 1 | state 1) of a two-state channel."""
    if setup.good[k, 0]:
        return setup.false_alarm[k], 1.0 - setup.missed[k]
    return setup.missed[k], 1.0 - setup.false_alarm[k]


@jit
def observed_idle(setup: Setup, k: int, idle: float) -> float:
    """Return the probability that channel k is observed as idle if it is idle with this probability."""
    if setup.missed[k] == 0.0 and setup.false_alarm[k] == 0.0:
        return idle
    return setup.missed[k] + (1.0 - setup.missed[k] - setup.false_alarm[k]) * idle


@jit
def truly_idle(setup: Setup, k: int, observed: float) -> float:
    """Return the inverse of `observed_idle`, within 0 and 1; `observed` where observations say nothing."""
    contrast = 1.0 - setup.missed[k] - setup.false_alarm[k]
    if contrast == 1.0 or contrast == 0.0:
        return observed
    return min(1.0, max(0.0, (observed - setup.missed[k]) / contrast))


@jit
def idle_given(setup: Setup, k: int, idle: float, s: int) -> float:
    """Return P(idle) of channel k after it was observed in state s, from P(idle) before."""
    sensing = sensing_of(setup, k)
    if setup.states[k] != 2 or not with_errors(sensing) or setup.good[k, 0] == setup.good[k, 1]:
        return 1.0 if setup.good[k, s] else 0.0
    if setup.good[k, 1]:
        return given(idle, sensing, s)
    return 1.0 - given(1.0 - idle, sensing, s)
