"""The memory of one sample path: the environment, the counters of a run, and the references."""

from functools import lru_cache

import numpy as np

from idleband.arrays import Flags, Floats, Ints
from idleband.kernels.rng import CONTEXTS, NOISE, SENSING, STATES, stream
from idleband.policies.protocol import PARAMETERS, STATES_SEEN
from idleband.scenario.channel_process import new_channel_process
from idleband.scenario.contexts import new_context_process
from idleband.scenario.recording import GOLDEN, Recording
from idleband.scenario.reward import REWARDS
from idleband.scenario.scenario import Scenario
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


@lru_cache(maxsize=64)
def path_parameters(scenario: Scenario, seed: int, replication: int) -> tuple[Floats, Floats]:
    """Return theta and the mean rewards of a replication, which all policies on it share."""
    theta = scenario.theta(seed, replication)
    means = scenario.mean_rewards(theta)[0]
    if scenario.perturbation.drift:  # estimated: the mean over the drift by Simpson's rule
        last = scenario.last_theta(seed, replication)
        middle = scenario.mean_rewards((theta + last) / 2)[0]
        means = (means + 4.0 * middle + scenario.mean_rewards(last)[0]) / 6.0
    return theta, means


def new_path(scenario: Scenario, seed: int, replication: int, theta: Floats) -> SamplePath:
    """Return the start of a sample path, which is the same for every policy, M and sensing mode."""
    K, d = scenario.K, scenario.dimension
    contexts = np.zeros(K * d)
    context_rng = stream(seed, replication, CONTEXTS)
    recording, errors, drift = scenario.recording, scenario.sensing_errors, scenario.perturbation.drift
    first = 0
    if scenario.contexts.recorded is not None:
        rows = len(scenario.contexts.recorded)
        first = int((replication * GOLDEN) % 1.0 * rows)
        if recording is not None and rows == recording.T:  # contexts of the same slots
            first = recording.first_slot(replication)
    n = np.zeros(K)
    ends = np.stack([theta, scenario.last_theta(seed, replication)]) if drift else np.zeros((0, 0, 0))
    return SamplePath(
        state_rng=stream(seed, replication, STATES),
        context_rng=context_rng,
        sensing_rng=stream(seed, replication, SENSING),
        noise_rng=stream(seed, replication, NOISE) if scenario.perturbation.noise else np.zeros(2, np.uint64),
        process=new_channel_process(scenario, seed, replication),
        context=new_context_process(scenario.contexts, K, context_rng, first),
        h=padded(scenario.rewards, 0.0),
        good=padded(scenario.good, False),
        mean_h=scenario.mean_h,
        good_share=scenario.good_shares,
        available=scenario.available,
        reward=REWARDS.index(scenario.reward),
        factor=scenario.reward_factor,
        switching_cost=scenario.switching_cost,
        model=scenario.perturbation.model.number,
        theta=theta.copy() if drift else theta,
        theta_ends=ends,
        drift=drift,
        noise=scenario.perturbation.noise,
        errors=errors is not None,
        missed=np.zeros(K) if errors is None else np.array(errors.missed),
        false_alarm=np.zeros(K) if errors is None else np.array(errors.false_alarm),
        u=np.zeros(K),
        s=np.zeros(K, np.int64),
        observed=np.zeros(K, np.int64),
        contexts=contexts,
        x=contexts.reshape(K, d),
        f=np.zeros(K) if scenario.perturbation.noise else n,
        n=n,
        fault=np.zeros(FAULT),
        expected=np.zeros(K),
        rewards=np.zeros(K),
        scratch=np.zeros(2 * K),
    )


def new_tally(scenario: Scenario, path: SamplePath, means: Floats, horizon: int, knows: frozenset[str]) -> Tally:
    K, M = scenario.K, scenario.users
    t = checkpoints(horizon, scenario.recording)
    return Tally(
        t=t,
        curves=np.zeros((len(CURVES), len(t))),
        now=np.zeros(len(CURVES)),
        carry=np.zeros(2),
        cursor=np.zeros(1, np.int64),
        plays=np.zeros(K, np.int64),
        last_pick=np.zeros(K, np.int64),
        picks=np.zeros(K, np.int64),
        picked=np.zeros(1, np.int64),
        static_worse=np.array([means < min(_largest(means, row, M), default=-np.inf) - TIE for row in path.available]),
        table_mean=scenario.table_means,
        table_best=np.array([_largest(scenario.table_means, row, M).sum() for row in path.available]),
        sensing=scenario.sensing == "all" or STATES_SEEN in knows,
        sees_states=STATES_SEEN in knows,
        hidden_states=np.full(K, -1, np.int64),
        sees_perturbations=PARAMETERS in knows,
        hidden_perturbations=np.full(K, np.nan),
        indices=np.zeros(K),
        scratch=np.zeros(2 * K),
    )


def new_references(scenario: Scenario, path: SamplePath, means: Floats, horizon: int) -> References:
    t = checkpoints(horizon, scenario.recording)
    return References(
        t=t,
        curves=np.zeros((len(REFERENCES), len(t))),
        now=np.zeros(len(REFERENCES)),
        carry=np.zeros(len(REFERENCES)),
        cursor=np.zeros(1, np.int64),
        M=scenario.users,
        static_slot=np.array([_largest(means, row, scenario.users).sum() for row in path.available]),
    )


def _largest(means: Floats, available: Flags, M: int) -> Floats:
    """Return the M largest means of the available channels in descending order (all, if there are fewer)."""
    return np.sort(means[available])[::-1][:M]
