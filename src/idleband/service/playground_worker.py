"""One playground run in a separate process: settings as JSON in, one JSON message per line out.

All policies advance together on the same sample paths, so that their curves grow side by side.
"""

import json
import resource
import sys
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Struct

from idleband.arrays import Floats, Ints
from idleband.errors import InputError
from idleband.policies.registry import POLICIES, ConfiguredPolicy, policy
from idleband.scenario.build import scenario as make_scenario
from idleband.scenario.perturbation import PERTURBATION_MODELS
from idleband.scenario.presets import PRESETS
from idleband.scenario.recording import Recording
from idleband.scenario.scenario import Scenario
from idleband.service.messages import ParameterValue
from idleband.simulation.blocks import block_samples
from idleband.simulation.path import checkpoints
from idleband.simulation.run import PolicyRun, ReferenceRun, in_segments
from idleband.simulation.statistics import Samples

MAX_POLICIES, MAX_REPLICATIONS, MAX_SLOTS, MAX_CHANNELS = 6, 10, 10**6, 50
MAX_WORK = 2 * 10**7  # slots of all policies and replications together, with up to WORK_CHANNELS channels
WORK_CHANNELS = 10  # with more channels, fewer slots are allowed in proportion
MAX_MEMORY = 3 * 2**30  # bytes of one run

Probabilities = float | list[float]  # one value for all channels, or one per channel


class PolicyChoice(Struct, forbid_unknown_fields=True):
    """A policy by name, with the parameters that differ from their defaults."""

    name: str
    parameters: dict[str, ParameterValue] = {}


class PlaygroundSettings(Struct, forbid_unknown_fields=True, kw_only=True):
    """Settings of a run. `channels`, `p01` and `p10` replace those of the preset `scenario`."""

    scenario: str = "S1"
    perturbation: str = "linear"
    channels: Annotated[int, Meta(ge=1, le=MAX_CHANNELS)] | None = None
    p01: Probabilities | None = None
    p10: Probabilities | None = None
    users: Annotated[int, Meta(ge=1, le=MAX_CHANNELS)] = 5
    policies: Annotated[list[PolicyChoice], Meta(min_length=1, max_length=MAX_POLICIES)]
    horizon: Annotated[int, Meta(ge=10, le=MAX_SLOTS)] = 20_000
    replications: Annotated[int, Meta(ge=1, le=MAX_REPLICATIONS)] = 3
    seed: Annotated[int, Meta(ge=0, le=2**31)] = 0


def build(settings: PlaygroundSettings) -> tuple[Scenario, list[ConfiguredPolicy]]:
    """Return the scenario and the configured policies of a run, or raise InputError with one line."""
    for value, field, allowed in (
        (settings.scenario, "scenario", list(PRESETS)), (settings.perturbation, "perturbation", _model_names()),
    ):  # fmt: skip
        if value not in allowed:
            raise InputError(f"{field} = {value!r}: must be one of {', '.join(allowed)}")
    for choice in settings.policies:
        if choice.name not in POLICIES or POLICIES[choice.name].source is not None:
            raise InputError(f"policy = {choice.name!r}: must be the name of a policy of the package")
    configured = [policy(choice.name, **choice.parameters) for choice in settings.policies]
    if len({one.label for one in configured}) < len(configured):
        raise InputError("policies: each policy may be given once")
    scenario = _scenario(settings)
    work = len(configured) * settings.replications * settings.horizon
    limit = MAX_WORK * WORK_CHANNELS // max(WORK_CHANNELS, scenario.K)
    if work > limit:
        raise InputError(
            f"horizon = {settings.horizon}: {work:,} slots over all policies and replications; must be at most"
            f" {limit:,} with {scenario.K} channels; choose fewer slots, policies or replications"
        )
    return scenario, configured


def _scenario(settings: PlaygroundSettings) -> Scenario:
    changes: dict[str, Any] = {"users": settings.users, "perturbation": settings.perturbation}
    preset = PRESETS[settings.scenario]
    if settings.channels is None and settings.p01 is None and settings.p10 is None:
        _check_users(settings.users, len(preset.p01))
        return make_scenario(settings.scenario, **changes)
    p01 = list(preset.p01) if settings.p01 is None else settings.p01
    p10 = list(preset.p10) if settings.p10 is None else settings.p10
    lengths = [len(values) for values in (p01, p10) if isinstance(values, list)]
    channels = settings.channels or (lengths[0] if lengths else len(preset.p01))
    _check_users(settings.users, channels)
    return make_scenario(
        name=f"{settings.scenario}-edited", p01=_per_channel(p01, channels, "p01"),
        p10=_per_channel(p10, channels, "p10"), **changes,
    )  # fmt: skip


def _check_users(users: int, channels: int) -> None:
    if users > channels:
        raise InputError(f"users = {users}: must be at most {channels}, the number of channels")


def _per_channel(values: Probabilities, channels: int, field: str) -> list[float]:
    """Return one probability per channel."""
    if not isinstance(values, list):
        return [values] * channels
    if len(values) != channels:
        raise InputError(f"{field}: has {len(values)} values; must be one value, or {channels}, one per channel")
    return values


def _model_names() -> list[str]:
    return [name for name, model in PERTURBATION_MODELS.items() if model.source is None]


def options() -> dict[str, Any]:
    """Return what a run can be made of: presets, perturbation models, policies and limits."""
    return {
        "scenarios": [
            {"name": name, "note": preset.note, "p01": preset.p01, "p10": preset.p10}
            for name, preset in PRESETS.items()
        ],
        "perturbations": _model_names(),
        "limits": {
            "policies": MAX_POLICIES, "replications": MAX_REPLICATIONS, "slots": MAX_SLOTS, "channels": MAX_CHANNELS,
            "work": MAX_WORK,
        },
        "policies": [
            {
                "name": name,
                "description": one.description,
                "parameters": [
                    {
                        "name": p.name,
                        "default": p.default,
                        "kind": "word" if hasattr(p.bound, "words") else p.kind.__name__,
                        "words": list(getattr(p.bound, "words", ())),
                        "allowed": p.allowed,
                        "meaning": p.meaning,
                    }
                    for p in one.parameters.values()
                    if p.name not in one.fixed
                ],
            }
            for name, one in POLICIES.items()
            if one.source is None
        ],
    }  # fmt: skip


Message = dict[str, Any]


def run(settings: PlaygroundSettings, emit: Callable[[Message], None]) -> None:
    """Run all policies and emit messages: preparations, progress, a point per checkpoint, and the end."""
    scenario, configured = build(settings)
    R, T = settings.replications, settings.horizon
    references = [ReferenceRun.start(scenario, T, settings.seed, i) for i in range(R)]
    runs: dict[str, list[PolicyRun]] = {}
    for one in configured:
        emit({"kind": "preparing", "policy": one.label})
        runs[one.label] = [PolicyRun.start(scenario, one, T, settings.seed, i) for i in range(R)]
    total, done = T * R * (len(configured) + 1), 0
    for found in _advance(references, runs, T, scenario.recording):
        if isinstance(found, int):
            done += found
            emit({"kind": "progress", "done": done / total})
        else:
            emit({"kind": "point", "done": done / total, **found})
    emit({"kind": "end"})


def _advance(
    references: list[ReferenceRun], runs: dict[str, list[PolicyRun]], horizon: int, recording: Recording | None
) -> Iterator[int | dict[str, Any]]:
    """Advance all runs from checkpoint to checkpoint; yield numbers of slots just run, and the point at each one."""
    every: list[PolicyRun | ReferenceRun] = [*references, *(one for group in runs.values() for one in group)]
    marks, recorded = checkpoints(horizon), checkpoints(horizon, recording)
    for c in np.flatnonzero(np.isin(recorded, marks)).tolist():
        t = recorded[: c + 1]
        for one in every:
            steps: list[int] = []
            in_segments(one, int(t[-1]), steps.append)
            yield sum(steps)
        static, contextual = (np.array([one.references.curves[i, : c + 1] for one in references]) for i in (0, 1))
        rewards = {label: np.array([one.tally.curves[0, : c + 1] for one in group]) for label, group in runs.items()}
        yield {
            "t": int(t[-1]),
            "curves": {
                label: {
                    "reward": _with_interval(reward, t, recording, per_slot=True),
                    "static": _with_interval(static - reward, t, recording),
                    "contextual": _with_interval(contextual - reward, t, recording),
                }
                for label, reward in rewards.items()
            },
            "differences": [
                {"of": a, "from": b, "reward": _with_interval(rewards[a] - rewards[b], t, recording, per_slot=True)}
                for a, b in combinations(rewards, 2)
            ],
        }


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
        run(msgspec.json.decode(sys.argv[1].encode(), type=PlaygroundSettings), emit)
    except (InputError, msgspec.DecodeError) as error:
        emit({"kind": "error", "detail": str(error)})
    except MemoryError:
        emit(
            {"kind": "error", "detail": f"the run was stopped: it needs more than {MAX_MEMORY / 2**30:g} GiB of memory"}
        )


if __name__ == "__main__":
    main()
