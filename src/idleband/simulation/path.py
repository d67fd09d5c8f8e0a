"""The memory of one sample path: the environment, the counters of a run, and the references."""

import contextlib
import math
from threading import Lock

import numpy as np

from idleband.arrays import Flags, Floats, Ints
from idleband.kernels.rng import CONTEXTS, NOISE, PERTURBATION, SENSING, STATES, STREAMS, streams
from idleband.policies.protocol import PARAMETERS, STATES_SEEN
from idleband.scenario import perturbation, strength_search
from idleband.scenario.channel_process import new_channel_process
from idleband.scenario.contexts import UNIFORM_CONTEXTS, new_context_process
from idleband.scenario.recording import GOLDEN, Recording
from idleband.scenario.reward import REWARDS
from idleband.scenario.scenario import Scenario, once
from idleband.scenario.uncoordinated import best_assignment
from idleband.scenario.upper_bound import padded
from idleband.scenario.user_models import FAULT
from idleband.simulation.environment import SamplePath
from idleband.simulation.loop import CURVES, REFERENCES, TIE, References, Tally

MAX_BLOCKS_RUN = 10_000  # blocks of a recording in a run


def checkpoints(horizon: int, recording: Recording | None = None) -> Ints:
    """Return the slots at which results are recorded: 20 per decade, rounded, and the horizon.

    Where a recording is replayed, also the slots with which a block of it ends, whatever the block in which a
    replication starts. Without a remainder after the last block these are the multiples of the length of a block.

    >>> checkpoints(5)
    array([1, 2, 3, 4, 5])
    """
    powers = 10.0 ** (np.arange(20 * (len(str(horizon)) + 1)) / 20)
    marks = np.round(powers).astype(np.int64)
    if recording is not None:
        passes = min(-(-horizon // recording.T), MAX_BLOCKS_RUN // recording.blocks + 1)
        steps = np.arange(1 - recording.blocks, recording.blocks) * recording.block
        ends = (np.arange(passes + 1) * recording.T)[:, None] + steps
        marks = np.append(marks, ends[ends > 0])
    marks = np.unique(marks)
    return np.append(marks[marks < horizon], horizon).astype(np.int64)


# --- parameters ------------------------------------------------------------------------------------------------------

KEPT_BYTES = 2**25  # about, of the parameters that are kept for a scenario
TOGETHER = 32  # replications whose parameters are drawn together
MANY = 16  # replications for which the compiled search for theta is loaded
VERY_MANY = 1000  # and compiling it

_drawing = Lock()


def path_parameters(scenario: Scenario, seed: int, replication: int) -> tuple[Floats, Floats]:
    """Return theta and the mean rewards of a replication, which all policies on it share."""
    kept = _kept_parameters(scenario)
    key = _key_of(scenario, seed, replication)
    found = kept.get(key)
    if found is None:
        theta = scenario.theta(seed, replication)
        means = scenario.mean_rewards(theta)[0]
        if scenario.perturbation.drift:  # estimated: the mean over the drift by Simpson's rule
            last = scenario.last_theta(seed, replication)
            middle = scenario.mean_rewards((theta + last) / 2)[0]
            means = (means + 4.0 * middle + scenario.mean_rewards(last)[0]) / 6.0
        found = theta, means
        _keep(scenario, key, found)
    return found


@once
def _kept_parameters(scenario: Scenario) -> dict[tuple[int, int], tuple[Floats, Floats]]:
    return {}


def _key_of(scenario: Scenario, seed: int, replication: int) -> tuple[int, int]:
    """Return what the parameters depend on: nothing, unless theta is drawn."""
    return (seed, replication) if scenario.perturbation.drawn else (0, 0)


def _keep(scenario: Scenario, key: tuple[int, int], found: tuple[Floats, Floats]) -> None:
    """Keep parameters in place of the oldest ones."""
    kept = _kept_parameters(scenario)
    most = max(2 * TOGETHER, KEPT_BYTES // (500 + sum(array.nbytes for array in found)))
    kept[key] = found
    while len(kept) > most:
        with contextlib.suppress(KeyError, RuntimeError, StopIteration):  # another thread has done it
            del kept[next(iter(kept))]


def prepare_drawing(scenario: Scenario, replications: int) -> None:
    """Load the search for theta, or compile it, if that takes less than drawing so many thetas without it."""
    saves_time = replications >= VERY_MANY or (replications >= MANY and strength_search.is_cached())
    if draws_together(scenario) and not strength_search.prepared() and saves_time:
        perturbation.prepare_drawing()


def draws_together(scenario: Scenario) -> bool:
    """Return whether thetas of several replications can be drawn together."""
    given = scenario.perturbation
    return given.drawn and given.clear is not None and not (given.drift or given.noise) and given.model.source is None


def draw_ahead(scenario: Scenario, seed: int, replication: int, replications: int) -> None:
    """Draw theta for this and the next replications below a number, and keep what `path_parameters` returns.

    For one theta, calls of NumPy take longer than the arithmetic.
    """
    if not (strength_search.prepared() and draws_together(scenario)) or replications < 2:
        return
    kept = _kept_parameters(scenario)
    if (seed, replication) in kept:
        return
    with _drawing:
        if (seed, replication) in kept:
            return
        block = range(replication, min(replications, replication + TOGETHER))
        given, d = scenario.perturbation, scenario.dimension
        rngs = np.array([streams(seed, i)[PERTURBATION] for i in block])
        count = scenario.K if given.per_channel else 1
        for i, rows in zip(block, given.model.draw_many(rngs, count, d, given.clear, given.theta_norm), strict=True):
            theta = scenario.theta_of(rows)
            _keep(scenario, (seed, i), (theta, scenario.mean_rewards(theta)[0]))


# --- the path --------------------------------------------------------------------------------------------------------


def new_path(scenario: Scenario, seed: int, replication: int, theta: Floats) -> SamplePath:
    """Return the start of a sample path, which is the same for every policy, M and sensing mode."""
    K, drift, noise = scenario.K, scenario.perturbation.drift, scenario.perturbation.noise
    rngs = streams(seed, replication)
    contexts, n = np.zeros(K * scenario.dimension), np.zeros(K)
    path = _first_path(scenario)
    return path._replace(
        state_rng=rngs[STATES],
        context_rng=rngs[CONTEXTS],
        sensing_rng=rngs[SENSING],
        noise_rng=rngs[NOISE],
        process=new_channel_process(scenario, rngs, replication),
        context=path.context
        if scenario.contexts.kind == "uniform"
        else new_context_process(scenario.contexts, K, rngs[CONTEXTS], first_context(scenario, replication)),
        theta=theta.copy() if drift else theta,
        theta_ends=np.stack([theta, scenario.last_theta(seed, replication)]) if drift else path.theta_ends,
        u=np.zeros(K),
        s=np.zeros(K, np.int64),
        observed=np.zeros(K, np.int64),
        contexts=contexts,
        x=contexts.reshape(K, scenario.dimension),
        f=np.zeros(K) if noise else n,
        n=n,
        fault=np.zeros(FAULT),
        expected=np.zeros(K),
        rewards=np.zeros(K),
        scratch=np.zeros(2 * K),
    )


def first_context(scenario: Scenario, replication: int) -> int:
    """Return the row of the recorded contexts in the first slot; 0 if contexts are not recorded."""
    recorded, recording = scenario.contexts.recorded, scenario.recording
    if recorded is None:
        return 0
    rows = len(recorded)
    if recording is not None and rows == recording.T:  # contexts of the same slots
        return recording.first_slot(replication)
    return int((replication * GOLDEN) % 1.0 * rows)


@once
def _first_path(scenario: Scenario) -> SamplePath:
    """Return a path whose arrays are shared by all replications, unless `new_path` replaces them."""
    K, d, errors = scenario.K, scenario.dimension, scenario.sensing_errors
    contexts, rng = np.zeros(K * d), np.zeros(2, np.uint64)
    return SamplePath(
        state_rng=rng,
        context_rng=rng,
        sensing_rng=rng,
        noise_rng=rng,
        process=new_channel_process(scenario, np.zeros((STREAMS, 2), np.uint64), 0),
        context=new_context_process(UNIFORM_CONTEXTS, K, rng, 0),
        h=padded(scenario.rewards, 0.0),
        good=padded(scenario.good, False),
        mean_h=scenario.mean_h,
        good_share=scenario.good_shares,
        available=scenario.available,
        reward=REWARDS.index(scenario.reward),
        factor=scenario.reward_factor,
        switching_cost=scenario.switching_cost,
        model=scenario.perturbation.model.number,
        theta=np.zeros((K, 0)),
        theta_ends=np.zeros((0, 0, 0)),
        drift=scenario.perturbation.drift,
        noise=scenario.perturbation.noise,
        errors=errors is not None,
        missed=np.zeros(K) if errors is None else np.array(errors.missed),
        false_alarm=np.zeros(K) if errors is None else np.array(errors.false_alarm),
        u=np.zeros(K),
        s=np.zeros(K, np.int64),
        observed=np.zeros(K, np.int64),
        contexts=contexts,
        x=contexts.reshape(K, d),
        f=np.zeros(K),
        n=np.zeros(K),
        fault=np.zeros(FAULT),
        expected=np.zeros(K),
        rewards=np.zeros(K),
        scratch=np.zeros(2 * K),
    )


# --- counters and references -----------------------------------------------------------------------------------------


def new_tally(scenario: Scenario, path: SamplePath, means: Floats, horizon: int, knows: frozenset[str]) -> Tally:
    K, t = scenario.K, kept_checkpoints(scenario, horizon)
    return _first_tally(scenario, knows)._replace(
        t=t,
        curves=np.zeros((len(CURVES), len(t))),
        now=np.zeros(len(CURVES)),
        carry=np.zeros(2),
        cursor=np.zeros(1, np.int64),
        plays=np.zeros(K, np.int64),
        last_pick=np.zeros(K, np.int64),
        picks=np.zeros(K, np.int64),
        picked=np.zeros(1, np.int64),
        static_worse=best_fixed(scenario, means, _all_present(scenario))[1],
        indices=np.zeros(K),
        scratch=np.zeros(2 * K),
    )


@once
def _first_tally(scenario: Scenario, knows: frozenset[str]) -> Tally:
    """Return a tally whose arrays are shared by all replications, unless `new_tally` replaces them."""
    K, none, counts = scenario.K, np.zeros(0), np.zeros(0, np.int64)
    return Tally(
        t=counts,
        curves=np.zeros((len(CURVES), 0)),
        now=none,
        carry=none,
        cursor=counts,
        plays=counts,
        last_pick=counts,
        picks=counts,
        picked=counts,
        static_worse=np.zeros((0, K), np.bool_),
        table_mean=scenario.table_means,
        table_best=best_fixed(scenario, scenario.table_means, _all_present(scenario))[0],
        sensing=scenario.sensing == "all" or STATES_SEEN in knows,
        sees_states=STATES_SEEN in knows,
        hidden_states=np.full(K, -1, np.int64),
        sees_perturbations=PARAMETERS in knows,
        hidden_perturbations=np.full(K, np.nan),
        indices=none,
        scratch=none,
    )


@once
def kept_checkpoints(scenario: Scenario, horizon: int) -> Ints:
    return checkpoints(horizon, scenario.recording)


def new_references(scenario: Scenario, path: SamplePath, means: Floats, horizon: int) -> References:
    t = kept_checkpoints(scenario, horizon)
    return References(
        t=t,
        curves=np.zeros((len(REFERENCES), len(t))),
        now=np.zeros(len(REFERENCES)),
        carry=np.zeros(len(REFERENCES)),
        cursor=np.zeros(1, np.int64),
        M=scenario.users,
        static_slot=best_fixed(scenario, means, _all_present(scenario))[0],
    )


@once
def _all_present(scenario: Scenario) -> Flags:
    return np.ones(scenario.users, np.bool_)


def best_fixed(scenario: Scenario, means: Floats, present: Flags) -> tuple[Floats, Flags]:
    """Return what the present users earn in a slot on the best fixed channels, and which channels are worse.

    Both by row of availability: shapes (P,) and (P, K). A channel that ties with one of the best is not worse.
    """
    given = scenario.uncoordinated
    if given is not None and given.quality is not None:
        return _best_assignments(scenario, np.array(given.quality)[present] * means)
    best, worse = [], []
    for available in scenario.available:
        usable = means[available] if scenario.availability else means
        largest = np.sort(usable)[::-1][: np.count_nonzero(present)]
        best.append(largest.sum())
        worse.append(means < (largest[-1] if len(largest) else -math.inf) - TIE)
    return np.array(best), np.array(worse)


def _best_assignments(scenario: Scenario, values: Floats) -> tuple[Floats, Flags]:
    """Return the same where the mean reward depends on the user: shape (users, K) of values."""
    best, worse = [], []
    for available in scenario.available:
        assigned = best_assignment(np.where(available, values, 0.0)) * available
        best.append((assigned * values).sum())
        worse.append(~assigned.any(axis=0))
    return np.array(best), np.array(worse)
