"""Response structures of the playground: what a run can be made of."""

from collections.abc import Iterable, Mapping
from typing import Annotated

from msgspec import Meta, Struct

from idleband.policies.protocol import Policy
from idleband.policies.registry import DECENTRALISED, POLICIES
from idleband.scenario.presets import PRESETS
from idleband.scenario.uncoordinated import COLLISION, MAX_CONTROL_BITS, OBSERVES
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
    WORK_USERS,
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
    work_users: Annotated[int, Meta(description="with more users than this and no base station, less in proportion")]
    control_bits: int


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
    policies: Annotated[list[PlaygroundPolicy], Meta(description="of base stations")]
    decentralised: Annotated[
        list[PlaygroundPolicy], Meta(description="policies of single users without a base station")
    ]
    collision: Annotated[list[str], Meta(description="who earns the reward of a collision between users")]
    observes: Annotated[list[str], Meta(description="what a user observes")]


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
            work_users=WORK_USERS,
            control_bits=MAX_CONTROL_BITS,
        ),
        policies=_offered(POLICIES),
        decentralised=_offered(DECENTRALISED),
        collision=list(COLLISION),
        observes=list(OBSERVES),
    )


def _offered(policies: Mapping[str, Policy]) -> list[PlaygroundPolicy]:
    """Return the policies of the package with the parameters that can be set."""
    return [
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
        for name, one in policies.items()
        if one.source is None
    ]
