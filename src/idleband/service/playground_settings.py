"""Settings of a playground run: what can be chosen, and the scenario and the policies that follow from it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta, Struct

from idleband.errors import InputError, counted
from idleband.policies.registry import DECENTRALISED, ConfiguredPolicy, all_policies, policy
from idleband.scenario.build import scenario as make_scenario
from idleband.scenario.perturbation import PERTURBATION_MODELS
from idleband.scenario.presets import PRESETS
from idleband.scenario.scenario import Scenario
from idleband.scenario.uncoordinated import COORDINATION
from idleband.service.messages import ParameterValue
from idleband.simulation.users_run import check_coordination
from idleband.trace.parquet import TraceFile

MAX_POLICIES, MAX_REPLICATIONS, MAX_SLOTS, MAX_CHANNELS = 6, 10, 10**6, 50
MAX_TRACE_CHANNELS = 1000
MAX_WORK = 2 * 10**7  # slots of all policies and replications together, with up to WORK_CHANNELS channels
WORK_CHANNELS = 10  # with more channels, fewer slots are allowed in proportion
WORK_USERS = 5  # without a base station, with more users fewer slots are allowed in proportion
MIN_SLOTS, DEFAULT_SLOTS = 10, 20_000

# Distributions of dwell times; their means are those of the chains.
DWELL: Mapping[str, dict[str, Any] | None] = {
    "geometric": None,
    "bursty": {"kind": "weibull", "shape": 0.6},
    "regular": {"kind": "negative-binomial", "shape": 8},
}
MAX_SENSING_ERROR = 0.3
MAX_NOISE = 0.5  # every perturbation model can have P(n < 1) = 0.7 with it
SHOCKS = {"start": 0.005, "end": 0.05, "share": 0.8}

STATION, NO_STATION = COORDINATION
USERS_SETTINGS = ("collision", "observes", "control_bits", "mean_stay", "mean_absence")  # of scenario.users

Probabilities = float | list[float]  # one value for all channels, or one per channel


class PolicyChoice(Struct, forbid_unknown_fields=True):
    """A policy by name, with the parameters that differ from their defaults."""

    name: str
    parameters: dict[str, ParameterValue] = {}


class PlaygroundSettings(Struct, forbid_unknown_fields=True, kw_only=True):
    """Settings of a run. `channels`, `p01` and `p10` replace those of the preset `scenario`."""

    scenario: str = "S1"  # a preset, or a trace of the service
    perturbation: str = "linear"
    noise: Annotated[float, Meta(ge=0, le=MAX_NOISE)] = 0.0  # of the perturbation, standard deviation
    channels: Annotated[int, Meta(ge=1, le=MAX_CHANNELS)] | None = None
    p01: Probabilities | None = None
    p10: Probabilities | None = None
    dwell: Literal["geometric", "bursty", "regular"] = "geometric"
    sensing_errors: Annotated[float, Meta(ge=0, le=MAX_SENSING_ERROR)] = 0.0  # missed and false_alarm
    shocks: bool = False
    regime_change: bool = False  # in the middle of the run channels exchange their chains in reverse order
    users: Annotated[int, Meta(ge=1, le=MAX_TRACE_CHANNELS)] = 5
    coordination: str = STATION  # "none": users choose channels themselves
    # Only without a base station, with the defaults of scenario.users.
    collision: str | None = None
    observes: str | None = None
    control_bits: int | None = None
    mean_stay: float | None = None
    mean_absence: float | None = None
    policies: Annotated[list[PolicyChoice], Meta(min_length=1, max_length=MAX_POLICIES)]
    horizon: Annotated[int, Meta(ge=MIN_SLOTS, le=MAX_SLOTS)] | None = None  # None: that of the trace, or 20,000
    replications: Annotated[int, Meta(ge=1, le=MAX_REPLICATIONS)] = 3
    seed: Annotated[int, Meta(ge=0, le=2**31)] = 0


class PlaygroundRun(NamedTuple):
    """What a run consists of."""

    scenario: Scenario
    policies: list[ConfiguredPolicy]
    horizon: int


# --- traces ----------------------------------------------------------------------------------------------------------


class OfferedTrace(NamedTuple):
    """A trace file that the service offers for replay."""

    name: str
    path: Path
    channels: int
    slots: int
    slot_seconds: float

    @property
    def horizon(self) -> int:
        """Slots of a run unless they are given."""
        return min(max(self.slots, MIN_SLOTS), MAX_SLOTS)


def offered_traces(files: Iterable[str | Path]) -> dict[str, OfferedTrace]:
    """Return traces by name, which is that of the file without its ending. Only the metadata are read."""
    found: dict[str, OfferedTrace] = {}
    for given in files:
        path = Path(given).absolute()
        trace = TraceFile(path)
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("-._")[:60]
        if not name or name in PRESETS or name in found:
            other = "a preset" if name in PRESETS else "another trace" if name else "no trace"
            raise InputError(f"--trace {given}: the name {name!r} belongs to {other}; rename the file")
        if trace.metadata.K > MAX_TRACE_CHANNELS:
            raise InputError(
                f"--trace {given}: has {trace.metadata.K} channels; the playground takes at most {MAX_TRACE_CHANNELS}"
            )
        if trace.T < 2:
            raise InputError(f"--trace {given}: has {trace.T} slot; must have at least 2")
        found[name] = OfferedTrace(name, path, trace.metadata.K, trace.T, trace.metadata.slot_s)
    return found


# --- the run ---------------------------------------------------------------------------------------------------------


def check(settings: PlaygroundSettings, traces: Mapping[str, OfferedTrace]) -> OfferedTrace | None:
    """Raise InputError with one line if settings are invalid; return the trace that is replayed, if there is one.

    A trace is not read, so that the service does not wait for it.
    """
    trace = traces.get(settings.scenario)
    if trace is None:
        build(settings, traces)
        return None
    configured = _policies(settings)
    _horizon_of(settings, trace.channels, trace)
    _check_choice(settings.perturbation, "perturbation", model_names())
    for field in ("channels", "p01", "p10"):
        if getattr(settings, field) is not None:
            raise InputError(f"{field}: must be left out; the trace {trace.name} defines the channels")
    for field, default in (("dwell", "geometric"), ("shocks", False), ("regime_change", False)):
        if getattr(settings, field) != default:
            raise InputError(f"{field}: must be left out; the trace {trace.name} defines the states of the channels")
    _check_users(settings.users, trace.channels)
    alike = [0.5] * trace.channels  # stands for the trace, which is not read
    _check_coordination(make_scenario(name=trace.name, p01=alike, p10=alike, users=_users(settings)), configured)
    return trace


def build(settings: PlaygroundSettings, traces: Mapping[str, OfferedTrace]) -> PlaygroundRun:
    """Return what a run consists of, or raise InputError with one line."""
    _check_choice(settings.scenario, "scenario", [*PRESETS, *traces])
    trace = traces.get(settings.scenario)
    if trace is not None:
        check(settings, traces)
        scenario = make_scenario(
            trace.path, name=trace.name, users=_users(settings), perturbation=_perturbation(settings),
            sensing_errors=_sensing_errors(settings),
        )  # fmt: skip
    else:
        _check_choice(settings.perturbation, "perturbation", model_names())
        scenario = _scenario(settings)
    configured = _policies(settings)
    _check_coordination(scenario, configured)
    return PlaygroundRun(scenario, configured, _horizon_of(settings, scenario.K, trace))


def _check_choice(value: str, field: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise InputError(f"{field} = {value!r}: must be one of {', '.join(allowed)}")


def _policies(settings: PlaygroundSettings) -> list[ConfiguredPolicy]:
    known = all_policies()
    for choice in settings.policies:
        if choice.name not in known or known[choice.name].source is not None:
            raise InputError(f"policy = {choice.name!r}: must be the name of a policy of the package")
    configured = [policy(choice.name, **choice.parameters) for choice in settings.policies]
    if len({one.label for one in configured}) < len(configured):
        raise InputError("policies: each policy may be given once")
    return configured


def _check_coordination(scenario: Scenario, policies: Sequence[ConfiguredPolicy]) -> None:
    """Raise InputError if a policy does not fit the users, or if without a base station none is of single users."""
    for configured in policies:
        check_coordination(scenario, configured.policy)
    if scenario.uncoordinated is not None and not any(configured.policy.decentralised for configured in policies):
        allowed = ", ".join(name for name, one in DECENTRALISED.items() if one.source is None)
        raise InputError(f"policies: without a base station at least one must be a policy of single users: {allowed}")


def _horizon_of(settings: PlaygroundSettings, channels: int, trace: OfferedTrace | None = None) -> int:
    """Return the number of slots of a run whose work is within the limit."""
    horizon = settings.horizon
    if horizon is None:
        horizon = DEFAULT_SLOTS if trace is None else trace.horizon
    work = len(settings.policies) * settings.replications * horizon
    limit = MAX_WORK * WORK_CHANNELS // max(WORK_CHANNELS, channels)
    sizes = f"{channels} channels"
    if settings.coordination == NO_STATION and settings.users > WORK_USERS:
        limit = limit * WORK_USERS // settings.users
        sizes += f" and {settings.users} users without a base station"
    if work > limit:
        raise InputError(
            f"horizon = {horizon}: {work:,} slots over all policies and replications; must be at most"
            f" {limit:,} with {sizes}; choose fewer slots, policies or replications"
        )
    return horizon


def _scenario(settings: PlaygroundSettings) -> Scenario:
    changes: dict[str, Any] = {
        "users": _users(settings), "perturbation": _perturbation(settings), "sensing_errors": _sensing_errors(settings),
    }  # fmt: skip
    if settings.shocks:
        changes["shocks"] = SHOCKS
    preset = PRESETS[settings.scenario]
    p01, p10, name = list(preset.p01), list(preset.p10), settings.scenario
    if not (settings.channels is None and settings.p01 is None and settings.p10 is None):
        given = [p01 if settings.p01 is None else settings.p01, p10 if settings.p10 is None else settings.p10]
        lengths = [len(values) for values in given if isinstance(values, list)]
        channels = settings.channels or (lengths[0] if lengths else len(preset.p01))
        p01, p10 = _per_channel(given[0], channels, "p01"), _per_channel(given[1], channels, "p10")
        name = f"{settings.scenario}-edited"
    else:
        changes["channel_names"] = preset.channel_names
    _check_users(settings.users, len(p01))
    dwell = DWELL[settings.dwell]
    if settings.regime_change and dwell is not None:
        raise InputError(f"regime_change: needs geometric dwell times; dwell is {settings.dwell}")
    if dwell is not None:
        changes["dwell"] = {"good": dwell, "bad": dwell}
    scenario = make_scenario(name=name, p01=p01, p10=p10, **changes)  # before regimes: its messages name p01 and p10
    if not settings.regime_change:
        return scenario
    middle = _horizon_of(settings, scenario.K) // 2 + 1
    regimes = {"p01": [p01, p01[::-1]], "p10": [p10, p10[::-1]], "at": [middle]}
    return make_scenario(name=name, regimes=regimes, **changes)


def _users(settings: PlaygroundSettings) -> int | dict[str, Any]:
    """Return the users as a scenario takes them, which refuses what is not used with a base station."""
    given = {name: getattr(settings, name) for name in USERS_SETTINGS if getattr(settings, name) is not None}
    if settings.coordination == STATION and not given:
        return settings.users
    return {"count": settings.users, "coordination": settings.coordination, **given}


def _perturbation(settings: PlaygroundSettings) -> dict[str, Any]:
    return {"kind": settings.perturbation, **({"noise": settings.noise} if settings.noise else {})}


def _sensing_errors(settings: PlaygroundSettings) -> dict[str, float] | None:
    p = settings.sensing_errors
    return {"missed": p, "false_alarm": p} if p else None


def _check_users(users: int, channels: int) -> None:
    if users > channels:
        raise InputError(f"users = {users}: must be at most {channels}, the number of channels")


def _per_channel(values: Probabilities, channels: int, field: str) -> list[float]:
    """Return one probability per channel."""
    if not isinstance(values, list):
        return [values] * channels
    if len(values) != channels:
        raise InputError(
            f"{field}: has {counted(len(values), 'value')}; must be one value, or {channels}, one per channel"
        )
    return values


def model_names() -> list[str]:
    """Return the names of the perturbation models of the package."""
    return [name for name, model in PERTURBATION_MODELS.items() if model.source is None]
