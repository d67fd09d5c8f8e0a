"""Simulate one policy on a scenario."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from idleband import validation
from idleband.errors import InputError
from idleband.policies.protocol import Policy
from idleband.policies.registry import ConfiguredPolicy, policy
from idleband.scenario.build import scenario as make_scenario
from idleband.scenario.reward import reward
from idleband.scenario.scenario import Scenario
from idleband.simulation.result import Result, result_of
from idleband.simulation.run import PolicyRun
from idleband.simulation.scheduler import ScheduledTask, Task, TaskResult, run_tasks

if TYPE_CHECKING:
    import pandas


MAX_SLOTS, MAX_REPLICATIONS, MAX_SEED = 10**10, 10**6, 2**63 - 1
MAX_RECORDED = 10**7  # rows of a slot-by-slot record


def simulate(
    scenario: Any,
    policy_: "str | Policy | ConfiguredPolicy | type",
    /,
    *,
    horizon: Any = 100_000,
    replications: Any = 5,
    seed: Any = 0,
    record: str | None = None,
    threads: int | None = None,
    **parameters: Any,
) -> Result:
    """Run one policy on a scenario.

    Keywords that are not named here are parameters of the policy. `record="slots"` keeps every slot of a short run.

    >>> result = simulate("S1", "mp-ucb", horizon=1000, replications=2, L=1.0)
    >>> result.regret("static").shape, int(result.plays.sum())
    ((2, 50), 10000)
    """
    described, configured = make_scenario(scenario), policy(policy_, **parameters)
    T, R, seed = check_size(horizon, replications, seed)
    if record not in (None, "slots"):
        raise InputError(f"record = {record!r}: must be 'slots' or left out")
    if record == "slots" and T * R * described.K > MAX_RECORDED:
        limit = MAX_RECORDED // (R * described.K)
        raise InputError(
            f"experiment.horizon = {T}: too long to record every slot; at most {limit} with {R} replications"
        )
    finished: dict[Task, TaskResult] = {}
    tasks = [Task(one, i) for i in range(R) for one in (None, configured)]
    run_tasks([ScheduledTask(described, task, T, seed, finished.__setitem__) for task in tasks], threads=threads)
    result = result_of(described, configured, seed, T, finished, R)
    if record == "slots":
        return Result(**{**vars(result), "slots": record_slots(described, configured, T, R, seed)})
    return result


def check_size(horizon: Any, replications: Any, seed: Any) -> tuple[int, int, int]:
    """Horizon, replications and seed, validated."""
    return (
        validation.whole(horizon, "experiment.horizon", 1, MAX_SLOTS),
        validation.whole(replications, "experiment.replications", 1, MAX_REPLICATIONS),
        validation.whole(seed, "experiment.seed", 0, MAX_SEED),
    )


def record_slots(
    scenario: Scenario, configured: ConfiguredPolicy, horizon: int, replications: int, seed: int
) -> "pandas.DataFrame":
    """Every slot of a short run: one row per replication, slot and channel (numbered from 0)."""
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
        "reward": np.full(shape, np.nan),  # of picked channels
    }
    contexts = np.zeros((*shape, d))
    rows = scenario.available
    for i in range(replications):
        run = PolicyRun.start(scenario, configured, horizon, seed, i)
        path = run.path
        for t in range(horizon):
            run.to(t + 1)
            picks = run.tally.picks[: run.tally.picked[0]]
            good = path.good[np.arange(K), path.s]
            columns["available"][i, t] = rows[t % len(rows)]
            columns["picked"][i, t, picks] = True
            columns["state"][i, t] = path.s
            columns["good"][i, t] = good
            columns["perturbation"][i, t] = path.n
            columns["expected_reward"][i, t] = path.expected
            for k in picks:
                columns["reward"][i, t, k] = reward(path.reward, path.h[k, path.s[k]], good[k], path.n[k])
            contexts[i, t] = path.x
    places = np.indices(shape).reshape(3, -1)
    table = {"replication": places[0], "t": places[1] + 1, "channel": places[2]}
    if scenario.channel_names:
        table["channel_name"] = np.array(scenario.channel_names)[places[2]]
    table |= {name: column.ravel() for name, column in columns.items()}
    table |= {f"x{j}": contexts[..., j].ravel() for j in range(d)}
    return pandas.DataFrame(table)
