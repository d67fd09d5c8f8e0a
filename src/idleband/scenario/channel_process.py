"""The states of all channels from slot to slot: Markov chains, dwell times, regimes, shocks, or a replayed trace."""

from typing import Any, NamedTuple

import numpy as np

from idleband.arrays import Floats, Ints
from idleband.kernels.compile import jit
from idleband.kernels.rng import REGIMES, SHOCKS, Rng, fill_uniform
from idleband.scenario.correlation import CorrelationFactors, correlation_factors, fill_correlated
from idleband.scenario.dwell_times import DwellProcess, enter_dwell, new_dwell_process, step_dwell
from idleband.scenario.markov import cumulative, gilbert_elliott, start, stationary, step
from idleband.scenario.recording import Playback, new_playback
from idleband.scenario.regimes import RegimeProcess, enter_regime, new_regime_process, step_regime
from idleband.scenario.scenario import Scenario, once
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


def new_channel_process(scenario: Scenario, rngs: Rng, replication: int) -> ChannelProcess:
    """Return the process of a replication, with its generators, before the first slot."""
    process = _first_process(scenario)
    changed: dict[str, Any] = {"slot": np.zeros(1, np.int64)}  # and what is used, as the rest is not written
    if scenario.dwell is not None:
        changed["dwell"] = process.dwell._replace(age=np.zeros(scenario.K, np.int64))
    if scenario.regimes is not None:
        changed["regime"] = process.regime._replace(
            rng=rngs[REGIMES], current=np.zeros(1, np.int64), passed=np.zeros(1, np.int64)
        )
    if scenario.shocks is not None:
        changed["shock"] = new_shock_process(scenario.shocks, scenario.K, rngs[SHOCKS])
    if scenario.recording is not None:
        changed["playback"] = new_playback(scenario.recording, replication)
    return process._replace(**changed)


@once
def _first_process(scenario: Scenario) -> ChannelProcess:
    """Return a process whose arrays are shared by all replications, unless they are written."""
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
        regime=new_regime_process(scenario.regimes, np.zeros(2, np.uint64)),
        shock=new_shock_process(scenario.shocks, scenario.K, np.zeros(2, np.uint64)),
        correlation=correlation_factors(scenario.correlation),
        playback=new_playback(None, 0),
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
