"""Simulate one policy on a scenario."""

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from idleband import validation
from idleband.arrays import Floats
from idleband.errors import InputError, counted
from idleband.policies.registry import Compiled, ConfiguredPolicy, PolicyLike, require_compiled
from idleband.policies.registry import policy as configured_policy
from idleband.progress import SILENT
from idleband.scenario.build import ScenarioLike
from idleband.scenario.build import scenario as build_scenario
from idleband.scenario.reward import reward
from idleband.scenario.scenario import Scenario
from idleband.simulation.devices import DeviceName, Precision, check_device, read_device
from idleband.simulation.environment import state_reward
from idleband.simulation.path import MAX_BLOCKS_RUN
from idleband.simulation.result import Result, result_of
from idleband.simulation.scheduler import ScheduledTask, Task, TaskResult, run_tasks
from idleband.simulation.users_loop import USER_CURVES
from idleband.simulation.users_run import UsersRun, start_run
from idleband.validation import WholeNumber

if TYPE_CHECKING:
    import pandas


DEFAULT_SLOTS = 100_000
MAX_SLOTS, MAX_REPLICATIONS, MAX_SEED = 10**10, 10**6, 2**63 - 1
MAX_RECORDED = 10**7  # rows of a slot-by-slot record


def simulate(
    scenario: ScenarioLike,
    policy: PolicyLike,
    /,
    *,
    horizon: WholeNumber | None = None,
    replications: WholeNumber = 5,
    seed: WholeNumber = 0,
    record: Literal["slots"] | None = None,
    threads: int | None = None,
    device: DeviceName = "cpu",
    precision: Precision = "float64",
    compiled: Compiled = "auto",
    **parameters: Any,
) -> Result:
    """Run one policy on a scenario.

    Parameters
    ----------
    scenario : str, Path, dict or Scenario
        The scenario, as in `idleband.scenario`.
    policy : str, ConfiguredPolicy or class
        The policy, as in `idleband.policy`.
    horizon : int, optional
        Number of slots; by default 100,000, or the number of slots of the trace if one is replayed.
    replications : int
        Number of independent replications; where a trace is replayed they start at different slots of it.
    seed : int
        Seed of the random streams. Equal seeds give equal sample paths.
    record : {"slots"}, optional
        "slots" keeps every slot of a short run in `result.slots`, one row per replication, slot and channel. Without a
        base station the column `users` is how many users play the channel.
    threads : int, optional
        Number of threads; by default all processor cores.
    device : {"cpu", "cuda"}
        "cuda" runs all replications together on an NVIDIA GPU. Needs the extra `gpu`. Results are close to those of
        the CPU, not equal bit by bit; the final states of the policy are not returned.
    precision : {"float64", "float32"}
        With "float32", a GPU keeps numbers that are not sums over many slots in 32 bits, which is faster.
    compiled : {"auto", "require"}
        With "require", a user's policy that does not compile is refused instead of run interpreted with a warning.
    **parameters
        Parameters of the policy.

    Returns
    -------
    Result

    Raises
    ------
    InputError
        If an argument is invalid, or a user's policy or perturbation model fails.

    Examples
    --------
    >>> import idleband as ib
    >>> result = ib.simulate("S1", "mp-ucb", horizon=1000, replications=2, L=1.0)
    >>> result.regret("static").shape, int(result.plays.sum())
    ((2, 50), 10000)
    """
    described = build_scenario(scenario)
    configured = require_compiled(configured_policy(policy, **parameters), compiled)
    T, R, seed = check_size(described, horizon, replications, seed)
    if record not in (None, "slots"):
        raise InputError(f"record = {record!r}: must be 'slots' or left out")
    on = read_device(device, precision)
    if on.name == "cuda" and (record or threads is not None):
        raise InputError(f"device = cuda and {'record' if record else 'threads'}: only one of them can be given")
    check_device(on, described, T)
    if record == "slots" and T * R * described.K > MAX_RECORDED:
        limit = MAX_RECORDED // (R * described.K)
        raise InputError(
            f"experiment.horizon = {T}: too long to record every slot; at most {limit} with {counted(R, 'replication')}"
        )
    finished: dict[Task, TaskResult] = {}
    tasks = [Task(one, i) for i in range(R) for one in (None, configured)]
    scheduled = [ScheduledTask(described, task, T, seed, finished.__setitem__) for task in tasks]
    if on.name == "cuda":
        from idleband.simulation.gpu.executor import CudaExecutor

        CudaExecutor(narrow=on.precision == "float32").run(scheduled, SILENT)
    else:
        run_tasks(scheduled, threads=threads)
    result = result_of(described, configured, seed, T, finished, R)
    if record == "slots":
        return Result(**{**vars(result), "slots": record_slots(described, configured, T, R, seed)})
    return result


def check_size(
    scenario: Scenario,
    horizon: WholeNumber | None,
    replications: WholeNumber,
    seed: WholeNumber,
    default: int = DEFAULT_SLOTS,
) -> tuple[int, int, int]:
    """Return horizon, replications and seed after validation.

    Where no horizon is given it is `default`, or the number of slots of the trace that is replayed.
    """
    recording = scenario.recording
    if horizon is None:
        horizon = default if recording is None else recording.T
    longest = MAX_SLOTS
    if recording is not None:
        longest = max(recording.T, MAX_BLOCKS_RUN * recording.block)  # rewards of every block are kept
    return (
        validation.whole(horizon, "experiment.horizon", 1, longest),
        validation.whole(replications, "experiment.replications", 1, MAX_REPLICATIONS),
        validation.whole(seed, "experiment.seed", 0, MAX_SEED),
    )


def record_slots(
    scenario: Scenario, configured: ConfiguredPolicy, horizon: int, replications: int, seed: int
) -> "pandas.DataFrame":
    """Return every slot of a short run, one row per replication, slot and channel."""
    import pandas

    K, d = scenario.K, scenario.dimension
    shape = (replications, horizon, K)
    columns: dict[str, npt.NDArray[Any]] = {
        "available": np.zeros(shape, np.bool_),
        "picked": np.zeros(shape, np.bool_),
        "state": np.zeros(shape, np.int64),
        "good": np.zeros(shape, np.bool_),
        "perturbation": np.zeros(shape),
        "expected_reward": np.zeros(shape),
        "reward": np.full(shape, np.nan),  # of picked channels, less the costs of sensing and switching
    }
    if scenario.sensing_errors is not None:
        columns["observed"] = np.zeros(shape, np.int64)
    if configured.policy.decentralised:
        columns["users"] = np.zeros(shape, np.int64)  # who play the channel
    contexts = np.zeros((*shape, d))
    rows = scenario.available
    for i in range(replications):
        run = start_run(scenario, configured, horizon, seed, i)
        path, before = run.path, np.zeros(scenario.users)
        for t in range(horizon):
            run.to(t + 1)
            good = path.good[np.arange(K), path.s]
            columns["available"][i, t] = rows[t % len(rows)]
            columns["state"][i, t] = path.s
            columns["good"][i, t] = good
            columns["perturbation"][i, t] = path.n
            columns["expected_reward"][i, t] = path.expected
            if path.errors:
                columns["observed"][i, t] = path.observed
            contexts[i, t] = path.x
            if isinstance(run, UsersRun):
                before = _record_users(run, before, {name: column[i, t] for name, column in columns.items()})
                continue
            picks = run.tally.picks[: run.tally.picked[0]]
            columns["picked"][i, t, picks] = True
            for k in picks:
                earned = reward(path.reward, state_reward(path, k, path.s[k]), good[k], path.n[k])
                switched = t > 0 and not columns["picked"][i, t - 1, k]
                columns["reward"][i, t, k] = path.factor * earned - path.switching_cost * switched
    places = np.indices(shape).reshape(3, -1)
    table = {"replication": places[0], "t": places[1] + 1, "channel": places[2]}
    if scenario.channel_names:
        table["channel_name"] = np.array(scenario.channel_names)[places[2]]
    table |= {name: column.ravel() for name, column in columns.items()}
    table |= {f"x{j}": contexts[..., j].ravel() for j in range(d)}
    return pandas.DataFrame(table)


def _record_users(run: UsersRun, before: Floats, slot: dict[str, npt.NDArray[Any]]) -> Floats:
    """Record which users play which channel in a slot, and their rewards; return the rewards of each user so far."""
    first = len(USER_CURVES)
    earned = run.tally.now[first : first + run.scenario.users].copy()
    for j, k in enumerate(run.tally.picks):
        if k >= 0:
            slot["picked"][k] = True
            slot["users"][k] += 1
            slot["reward"][k] = np.nan_to_num(slot["reward"][k]) + earned[j] - before[j]
    return earned
