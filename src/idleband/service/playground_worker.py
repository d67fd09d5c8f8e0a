"""One playground run in a separate process: settings as JSON in, one JSON message per line out.

The second argument, if there is one, is the path of the trace that is replayed; it comes from the service, never from a
client. All policies advance together on the same sample paths, so that their curves grow side by side. Without a base
station, messages with the first slots of the first replication come before the points.
"""

import json
import resource
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import Any

import msgspec
import numpy as np

from idleband.arrays import Floats, Ints
from idleband.errors import InputError
from idleband.scenario.recording import Recording
from idleband.service.playground_settings import OfferedTrace, PlaygroundSettings, build, offered_traces
from idleband.service.playground_slots import AnyRun, SlotRecorder, upper_bound
from idleband.simulation.blocks import block_samples
from idleband.simulation.path import checkpoints
from idleband.simulation.run import ReferenceRun, in_segments
from idleband.simulation.statistics import Samples
from idleband.simulation.users_loop import LAST_COLLISION, MESSAGES, SWITCHES, USER_COLLISIONS
from idleband.simulation.users_run import start_run

MAX_MEMORY = 3 * 2**30  # bytes of one run

Message = dict[str, Any]


def run(
    settings: PlaygroundSettings, emit: Callable[[Message], None], traces: Mapping[str, OfferedTrace] | None = None
) -> None:
    """Run all policies and emit messages: preparations, progress, a point per checkpoint, and the end."""
    scenario, configured, T = build(settings, traces or {})
    R = settings.replications
    references = [ReferenceRun.start(scenario, T, settings.seed, i) for i in range(R)]
    runs: dict[str, list[AnyRun]] = {}
    for one in configured:
        emit({"kind": "preparing", "policy": one.label})
        runs[one.label] = [start_run(scenario, one, T, settings.seed, i) for i in range(R)]
    recorder = None
    if scenario.uncoordinated is not None:
        recorder = SlotRecorder(scenario, {label: group[0] for label, group in runs.items()}, T)
        emit(recorder.begin())
    total, done, bounded = T * R * (len(configured) + 1), 0, recorder is None
    for found in _advance(references, runs, T, scenario.recording, recorder):
        if isinstance(found, int):
            done += found
            emit({"kind": "progress", "done": done / total})
        elif "kind" in found:
            emit(found)
        else:
            emit({"kind": "point", "done": done / total, **found})
            if not bounded:  # after the first slots, because it may take some seconds
                emit({"kind": "bound", "reward": upper_bound(scenario, settings.seed)})
                bounded = True
    emit({"kind": "end"})


def _advance(
    references: list[ReferenceRun],
    runs: dict[str, list[AnyRun]],
    horizon: int,
    recording: Recording | None,
    recorder: SlotRecorder | None,
) -> Iterator[int | dict[str, Any]]:
    """Advance all runs from checkpoint to checkpoint.

    Yield numbers of slots just run, messages with recorded slots, and the point at each checkpoint.
    """
    every: list[AnyRun | ReferenceRun] = [*references, *(one for group in runs.values() for one in group)]
    marks, recorded = checkpoints(horizon), checkpoints(horizon, recording)
    for c in np.flatnonzero(np.isin(recorded, marks)).tolist():
        t = recorded[: c + 1]
        if recorder is not None:
            for message in recorder.to(int(t[-1])):
                yield message
                yield len(runs) * (message["last"] - message["first"] + 1)
        for one in every:
            steps: list[int] = []
            in_segments(one, int(t[-1]), steps.append)
            yield sum(steps)
        static, contextual = (np.array([one.references.curves[i, : c + 1] for one in references]) for i in (0, 1))
        rewards = {label: np.array([one.tally.curves[0, : c + 1] for one in group]) for label, group in runs.items()}
        # What intervals are based on where a trace is replayed; otherwise they are over replications.
        basis = {} if recording is None else {"intervals": block_samples(recording, t, static).interval().basis}
        yield {
            "t": int(t[-1]),
            **basis,
            "curves": {
                label: {
                    "reward": _with_interval(reward, t, recording, per_slot=True),
                    "static": _with_interval(static - reward, t, recording),
                    "contextual": _with_interval(contextual - reward, t, recording),
                }
                for label, reward in rewards.items()
            },
            **({} if recorder is None else {"users": _without_station(runs, t, recording)}),
            "differences": [
                {"of": a, "from": b, "reward": _with_interval(rewards[a] - rewards[b], t, recording, per_slot=True)}
                for a, b in combinations(rewards, 2)
            ],
        }


def _without_station(runs: dict[str, list[AnyRun]], t: Ints, recording: Recording | None) -> dict[str, Any]:
    """Return what only users without a base station have: collisions, switches and messages, by policy."""
    found = {}
    for label, group in runs.items():
        if not group[0].configured.policy.decentralised:
            continue
        curves = np.array([one.tally.curves[:, : len(t)] for one in group])
        found[label] = {
            "collisions": _with_interval(curves[:, USER_COLLISIONS], t, recording),
            "switches": _with_interval(curves[:, SWITCHES], t, recording, per_slot=True),
            "messages": _with_interval(curves[:, MESSAGES], t, recording, per_slot=True),
            "last_collision": [int(value) for value in curves[:, LAST_COLLISION, -1]],  # of each replication, 0: none
        }
    return found


def _with_interval(curve: Floats, t: Ints, recording: Recording | None, per_slot: bool = False) -> list[float]:
    """Return the mean of a cumulative value at the last checkpoint and the half width of its 95% interval (0: none)."""
    if recording is None:
        samples = Samples(curve[:, -1] / t[-1] if per_slot else curve[:, -1], len(curve))
    else:
        samples = block_samples(recording, t, curve) * (1.0 if per_slot else float(t[-1]))
    found = samples.interval()
    return [found.mean, found.half_width if np.isfinite(found.half_width) else 0.0]


def main() -> None:
    """Run the settings given as the first argument and write messages to standard output."""

    def emit(message: Message) -> None:
        sys.stdout.write(json.dumps(message, allow_nan=False) + "\n")
        sys.stdout.flush()

    resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY, MAX_MEMORY))
    try:
        settings = msgspec.json.decode(sys.argv[1].encode(), type=PlaygroundSettings)
        run(settings, emit, offered_traces(sys.argv[2:]))
    except (InputError, msgspec.DecodeError) as error:
        emit({"kind": "error", "detail": str(error)})
    except MemoryError:
        emit(
            {"kind": "error", "detail": f"the run was stopped: it needs more than {MAX_MEMORY / 2**30:g} GiB of memory"}
        )


if __name__ == "__main__":
    main()
