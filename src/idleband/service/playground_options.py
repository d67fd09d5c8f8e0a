"""Response structures of the playground: what a run can be made of."""

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta, Struct

from idleband.policies.registry import POLICIES
from idleband.scenario.presets import PRESETS
from idleband.service.messages import ParameterValue
from idleband.service.playground_settings import (
    DWELL,
    MAX_CHANNELS,
    MAX_NOISE,
    MAX_POLICIES,
    MAX_REPLICATIONS,
    MAX_SENSING_ERROR,
    MAX_SLOTS,
    MAX_WORK,
    WORK_CHANNELS,
    OfferedTrace,
    model_names,
)


class PlaygroundPreset(Struct):
    name: str
    note: str
    p01: tuple[float, ...]
    p10: tuple[float, ...]


class PlaygroundTrace(Struct):
    """A trace that can be replayed, by its name."""

    name: str
    channels: int
    slots: int
    slot_seconds: float
    horizon: Annotated[int, Meta(description="slots of a run unless they are given")]


class PlaygroundLimits(Struct):
    policies: int
    replications: int
    slots: int
    channels: Annotated[int, Meta(description="of presets; traces may have more")]
    sensing_errors: float
    noise: float
    work: Annotated[int, Meta(description="slots over all policies and replications")]
    work_channels: Annotated[int, Meta(description="with more channels than this, less work in proportion")]


class PlaygroundParameter(Struct):
    name: str
    default: ParameterValue
    kind: Annotated[str, Meta(description="float, int, bool or word")]
    words: Annotated[list[str], Meta(description="allowed values, if it is a word")]
    allowed: Annotated[str, Meta(description="allowed values in words")]
    meaning: str


class PlaygroundPolicy(Struct):
    name: str
    description: str
    parameters: list[PlaygroundParameter]


class PlaygroundOptions(Struct):
    scenarios: list[PlaygroundPreset]
    traces: list[PlaygroundTrace]
    perturbations: list[str]
    dwell: Annotated[list[str], Meta(description="distributions of dwell times")]
    limits: PlaygroundLimits
    policies: list[PlaygroundPolicy]


def options(traces: Iterable[OfferedTrace]) -> PlaygroundOptions:
    """Return what a run can be made of: presets, traces, perturbation models, policies and limits."""
    return PlaygroundOptions(
        scenarios=[PlaygroundPreset(name, one.note, one.p01, one.p10) for name, one in PRESETS.items()],
        traces=[PlaygroundTrace(one.name, one.channels, one.slots, one.slot_seconds, one.horizon) for one in traces],
        perturbations=model_names(),
        dwell=list(DWELL),
        limits=PlaygroundLimits(
            policies=MAX_POLICIES,
            replications=MAX_REPLICATIONS,
            slots=MAX_SLOTS,
            channels=MAX_CHANNELS,
            sensing_errors=MAX_SENSING_ERROR,
            noise=MAX_NOISE,
            work=MAX_WORK,
            work_channels=WORK_CHANNELS,
        ),
        policies=[
            PlaygroundPolicy(
                name,
                one.description,
                [
                    PlaygroundParameter(
                        name=p.name,
                        default=p.default,
                        kind="word" if hasattr(p.bound, "words") else p.kind.__name__,
                        words=list(getattr(p.bound, "words", ())),
                        allowed=p.allowed,
                        meaning=p.meaning,
                    )
                    for p in one.parameters.values()
                    if p.name not in one.fixed
                ],
            )
            for name, one in POLICIES.items()
            if one.source is None
        ],
    )
