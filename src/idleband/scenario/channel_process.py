"""The states of all channels from slot to slot: Markov chains, dwell times, regimes, shocks, or a replayed trace."""

from typing import NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels.compile import jit
from idleband.kernels.rng import REGIMES, SHOCKS, Rng, fill_uniform, stream
from idleband.scenario.correlation import CorrelationFactors, correlation_factors, fill_correlated
from idleband.scenario.dwell_times import DwellProcess, enter_dwell, new_dwell_process, step_dwell
from idleband.scenario.markov import cumulative, gilbert_elliott, start, stationary, step
from idleband.scenario.recording import Playback, new_playback
from idleband.scenario.regimes import RegimeProcess, enter_regime, new_regime_process, step_regime
from idleband.scenario.scenario import Scenario
from idleband.scenario.shocks import ShockProcess, enter_shocks, new_shock_process, step_shocks


class ChannelProcess(NamedTuple):
    """Everything that determines the states of the next slot."""

    slot: Ints  # (1,) slot of the states, from 1; 0 before the first
    start: Floats  # (R, K, S-1) inner limits of the stationary distribution, for each regime
    limits: Floats  # (R, K, S, S-1) inner limits of the transition rows
    dwell: DwellProcess
    regime: RegimeProcess
    shock: ShockProcess
    correlation: CorrelationFactors
    playback: Playback


def new_channel_process(scenario: Scenario, seed: int, replication: int) -> ChannelProcess:
    """Return the process of a replication before its first slot."""
    S = max(2, max(map(len, scenario.transition)))
    if scenario.regimes is None:
        chains = [scenario.transition]
        starts = [tuple(stationary(P) for P in scenario.transition)]
    else:
        given = scenario.regimes
        chains = [
            tuple(gilbert_elliott(a, b) for a, b in zip(*rows, strict=True))
            for rows in zip(given.p01, given.p10, strict=True)
        ]
        joint = given.joint()
        starts = [tuple(row / row.sum() for row in regime) for regime in joint]
    return ChannelProcess(
        slot=np.zeros(1, np.int64),
        start=np.array(
            [[cumulative(row[None, :].repeat(len(row), 0), S)[0] for row in distributions] for distributions in starts]
        ),
        limits=np.array([[cumulative(P, S) for P in matrices] for matrices in chains]),
        dwell=new_dwell_process(scenario.dwell, scenario.K),
        regime=new_regime_process(scenario.regimes, stream(seed, replication, REGIMES)),
        shock=new_shock_process(scenario.shocks, scenario.K, stream(seed, replication, SHOCKS)),
        correlation=correlation_factors(scenario.correlation),
        playback=new_playback(scenario.recording, replication),
    )


@jit
def enter_states(process: ChannelProcess, rng: Rng, u: Floats, s: Ints) -> None:
    """Draw the states before slot 1 from their stationary distribution.

    Channels that depend on each other start independently of each other (with regimes: given the regime).
    """
    if process.playback.idle.shape[0] > 0:
        return
    enter_regime(process.regime)
    fill_draws(process, rng, u)
    start(process.start[process.regime.current[0]], u, s)
    if process.dwell.which.shape[0] > 0:
        enter_dwell(process.dwell, rng, u, s)
    if process.shock.start > 0.0:
        enter_shocks(process.shock)
        for k in range(s.size):
            process.shock.own[k] = s[k]


@jit
def next_states(process: ChannelProcess, rng: Rng, u: Floats, s: Ints) -> None:
    """Advance every channel by one slot."""
    process.slot[0] += 1
    if process.playback.idle.shape[0] > 0:
        row = playback_row(process)
        for k in range(s.size):
            s[k] = 1 if process.playback.idle[row, k] else 0
        return
    step_regime(process.regime, process.slot[0], process.limits.shape[0])
    fill_draws(process, rng, u)
    shocks = process.shock.start > 0.0
    own = process.shock.own if shocks else s
    if process.dwell.which.shape[0] > 0:
        step_dwell(process.dwell, u, own)
    else:
        step(process.limits[process.regime.current[0]], u, own)
    if shocks:
        step_shocks(process.shock)
        for k in range(s.size):
            s[k] = 0 if process.shock.hit[k] else own[k]


@jit
def fill_draws(process: ChannelProcess, rng: Rng, u: Floats) -> None:
    """Write the uniform draws by which channels move."""
    if process.correlation.shared > 0.0 or process.correlation.neighbours > 0.0:
        fill_correlated(process.correlation, rng, u)
    else:
        fill_uniform(rng, u)


@jit
def playback_row(process: ChannelProcess) -> int:
    """Return the row of the trace that is replayed in this slot."""
    return (process.playback.first[0] + process.slot[0] - 1) % process.playback.idle.shape[0]
