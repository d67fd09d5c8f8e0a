"""Settings of an allocator: validated, and as plain data for files and requests."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from idleband import validation
from idleband.arrays import Floats
from idleband.channels import check_channel_names
from idleband.errors import InputError, shown, unknown
from idleband.policies.configured import split_parameters
from idleband.policies.knowledge import setup_of, truth_of
from idleband.policies.protocol import CONTEXTS_SEEN, PARAMETERS, STATES_SEEN, Setup, Truth
from idleband.policies.registry import ConfiguredPolicy, policy
from idleband.scenario.build import scenario as make_scenario
from idleband.scenario.reward import HIGH, LOW
from idleband.scenario.scenario import Scenario
from idleband.scenario.sensing_errors import SensingErrors, read_sensing_errors
from idleband.scenario.table import from_table
from idleband.scenario.uncoordinated import SENSING
from idleband.simulation.path import path_parameters
from idleband.simulation.simulate import MAX_REPLICATIONS, MAX_SEED

MAX_CHANNELS, MAX_DIMENSION, MAX_PATIENCE = 10_000, 10_000, 10**6
# Bytes of context models and of the decisions that are kept. Together they must fit into a snapshot, which SQLite
# limits to 10^9 bytes.
MAX_MODEL_BYTES, MAX_RECORD_BYTES = 2**29, 2**28
DEFAULT_PATIENCE = 1000  # slots; fewer if the decisions would take too much memory
MAX_SWITCHING_COST = 1e6
FEEDBACKS = ("reward", "perturbation")

DERIVED = ("policy", "source")  # fields that are not settings
CHANGEABLE = ("channel_names", "patience", "deadline", "collision_limit")  # while an allocator exists
DEFINED_BY_SCENARIO = ("channels", "users", "dimension", "feedback", "rewards", "sensing_errors", "switching_cost")


@dataclass(frozen=True)
class Settings:
    """Settings of an allocator as `Allocator` describes them, with defaults filled in."""

    policy: str  # name, or absolute path of a file with a name
    parameters: dict[str, Any]
    channels: int
    users: int
    dimension: int
    channel_names: tuple[str, ...]  # empty if channels have no names
    feedback: str
    rewards: tuple[float, float]
    sensing_errors: dict[str, Any] | None
    switching_cost: float
    scenario: dict[str, Any] | None
    seed: int
    replication: int
    patience: int
    fallback: str
    incumbent: str | None
    deadline: float | None
    collision_limit: float
    source: str | None  # digest of the source of a user's policy

    @classmethod
    def checked(cls, given: Mapping[str, Any]) -> "Settings":
        """Validate settings. Keys that are not settings are parameters of the policy."""
        given = dict(given)
        named_policy = given.pop("policy")
        own = {key: given.pop(key) for key in cls.__dataclass_fields__ if key in given and key not in DERIVED}
        configured = cls._configured(named_policy, own.get("parameters"), given)
        scenario = None if own.get("scenario") is None else _stored_in_files(make_scenario(own["scenario"]))
        if configured.policy.decentralised:
            raise InputError(f"policy {configured.policy.name}: is for single users; an allocator selects for all")
        if scenario is not None and scenario.uncoordinated is not None:
            raise InputError(f"scenario {scenario.name}: has no base station; an allocator selects for all users")
        noise = 0.0 if scenario is None else scenario.perturbation.noise
        if noise and {PARAMETERS, STATES_SEEN} <= configured.policy.knows:
            raise InputError(
                f"policy {configured.policy.name}: knows the perturbations of a slot, which contexts do not determine"
                f" where scenario.perturbation.noise = {noise:g}; must be another policy, or noise 0"
            )
        fallback = _built_in(own.get("fallback", "mp-ucb"), "fallback")
        incumbent = None if own.get("incumbent") is None else _built_in(own["incumbent"], "incumbent")
        if scenario is not None:
            for key in DEFINED_BY_SCENARIO:
                if own.get(key) is not None:
                    raise InputError(f"{key} = {shown(own[key])}: must be left out; the scenario defines it")
            K, users, d = scenario.K, scenario.users, scenario.dimension
        else:
            if PARAMETERS in configured.policy.knows:
                raise InputError(
                    f"policy {configured.policy.name}: needs a scenario, because it knows the true parameters"
                )
            policies = [configured, policy(fallback), *([] if incumbent is None else [policy(incumbent)])]
            K, users, d = _sizes(own, [one.policy.name for one in policies if CONTEXTS_SEEN in one.policy.knows])
        if CONTEXTS_SEEN in configured.policy.knows and 8 * K * (d + 1) ** 2 > MAX_MODEL_BYTES:
            raise InputError(
                f"dimension = {d}: models of {K} channels would take {8 * K * (d + 1) ** 2 / 2**30:.1f} GiB; must be at"
                f" most {MAX_MODEL_BYTES / 2**30:g} GiB"
            )
        max_patience = max(1, min(MAX_PATIENCE, MAX_RECORD_BYTES // (8 * K * (d + 8))))
        deadline = own.get("deadline")
        channel_names = _channel_names(own.get("channel_names"), scenario, K)
        errors = scenario.sensing_errors if scenario else _sensing_errors(own.get("sensing_errors"), K, channel_names)
        return cls(
            policy=_absolute(named_policy) if isinstance(named_policy, str) else configured.policy.name,
            parameters=configured.values,
            channels=K,
            users=users,
            dimension=d,
            channel_names=channel_names,
            feedback=scenario.feedback
            if scenario
            else validation.choice(own.get("feedback", "reward"), "feedback", FEEDBACKS),
            rewards=(LOW, HIGH) if scenario else _rewards(own.get("rewards", (LOW, HIGH))),
            sensing_errors=None if errors is None else errors.to_dict(),
            switching_cost=scenario.switching_cost
            if scenario
            else validation.number(own.get("switching_cost", 0.0), "switching_cost", 0.0, MAX_SWITCHING_COST),
            scenario=scenario.to_dict() if scenario else None,
            seed=validation.whole(own.get("seed", 0), "seed", 0, MAX_SEED),
            replication=validation.whole(own.get("replication", 0), "replication", 0, MAX_REPLICATIONS),
            patience=validation.whole(
                own.get("patience", min(DEFAULT_PATIENCE, max_patience)), "patience", 1, max_patience
            ),
            fallback=fallback,
            incumbent=incumbent,
            deadline=None if deadline is None else validation.number(deadline, "deadline", 0.0, 3600.0, above=True),
            collision_limit=validation.number(own.get("collision_limit", 1.0), "collision_limit", 0.0, 1.0),
            source=configured.policy.source,
        )

    @classmethod
    def _configured(cls, named_policy: Any, parameters: Any, keywords: dict[str, Any]) -> ConfiguredPolicy:
        """Return the policy with its parameters, which come as a mapping, as keywords, or both."""
        table = {} if parameters is None else validation.table(parameters, "parameters")
        for key in table:
            if key in keywords:
                raise InputError(f"parameters: {key} is given twice, also as a keyword")
        known = policy(named_policy).policy.parameters
        for key in keywords:
            if key.removesuffix("_") not in known:  # lambda_ stands for lambda
                names = (*(name for name in cls.__dataclass_fields__ if name not in DERIVED), *known)
                raise unknown("setting or parameter of the policy", key, names)
        return policy(named_policy, **table, **keywords)

    @classmethod
    def restored(cls, data: dict[str, Any]) -> "Settings":
        """Return settings from `to_dict`, validated again because a file may have been edited."""
        data = dict(data)
        source = data.pop("source", None)
        if data.get("scenario") is not None:
            data = {key: value for key, value in data.items() if key not in DEFINED_BY_SCENARIO}
            # Version 0.1 accepted state rewards that the threshold reward does not pay.
            data["scenario"] = from_table(validation.table(data["scenario"], "scenario"), stored=True)
        settings = cls.checked(data)
        if settings.source != source:
            raise InputError(f"policy {settings.policy}: its file has changed since it was used here; restore the file")
        return settings

    def changed(self, given: Mapping[str, Any]) -> "Settings":
        """Return settings with other values for some of them: those that do not decide what the state consists of."""
        for key in given:
            if key not in CHANGEABLE:
                raise unchangeable(key)
        return Settings.restored({**self.to_dict(), **given})

    def difference(self, other: "Settings") -> str:
        """Describe the first setting that differs from another's; empty if all are equal."""
        mine, theirs = self.to_dict(), other.to_dict()
        for key, value in mine.items():
            if key == "scenario" and _same_scenario(value, theirs[key]):
                continue
            if key == "channel_names" and not (value and theirs[key]):
                continue  # version 0.1 stored no channel names
            if value != theirs[key]:
                return f"{key} = {shown(value)}, not {shown(theirs[key])}"
        return ""

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain data."""
        return asdict(self)

    @cached_property
    def configured(self) -> ConfiguredPolicy:
        """The policy with its parameters."""
        return policy(self.policy, **self.parameters)

    @cached_property
    def built_scenario(self) -> Scenario | None:
        """The scenario, if there is one."""
        return None if self.scenario is None else from_table(self.scenario, stored=True)

    @cached_property
    def setup(self) -> Setup:
        """What policies know before the first slot, without parameters."""
        if self.built_scenario is not None:
            return setup_of(self.built_scenario, ())
        K, (low, high) = self.channels, self.rewards
        errors = _sensing_errors(self.sensing_errors, K, self.channel_names)
        return Setup(
            K=K,
            M=self.users,
            d=self.dimension,
            low=low,
            high=high,
            span=max(1.0, high - low),
            h_span=max(1.0, high - low),
            h=np.tile([low, high], (K, 1)),
            states=np.full(K, 2),
            good=np.tile([False, True], (K, 1)),
            threshold=True,
            measured=self.feedback == "perturbation",
            missed=np.zeros(K) if errors is None else np.array(errors.missed),
            false_alarm=np.zeros(K) if errors is None else np.array(errors.false_alarm),
            switching_cost=self.switching_cost,
            users=self.users,
            horizon=0,
            control_bits=0,
            observes=SENSING,
            params=(),
        )

    @cached_property
    def _thetas(self) -> tuple[Floats, Floats]:
        scenario = self.built_scenario
        assert scenario is not None
        return scenario.theta(self.seed, self.replication), scenario.last_theta(self.seed, self.replication)

    def theta(self, slot: int) -> Floats:
        """Return the parameters of the scenario's perturbation model in a slot; there must be a scenario."""
        assert self.built_scenario is not None
        first, last = self._thetas
        drift = self.built_scenario.perturbation.drift
        return first + min(1.0, slot / drift) * (last - first) if drift else first

    @cached_property
    def truth(self) -> Truth | None:
        """The true parameters of the scenario, for an oracle."""
        if self.built_scenario is None or PARAMETERS not in self.configured.policy.knows:
            return None
        return truth_of(self.built_scenario, *path_parameters(self.built_scenario, self.seed, self.replication))


def unchangeable(key: str) -> InputError:
    """Return the error for a setting that an existing allocator keeps, or that does not exist."""
    if key not in Settings.__dataclass_fields__ or key == "source":
        return unknown("setting", key[:80], CHANGEABLE)
    return InputError(
        f"{key}: cannot be changed, because what the allocator has learned depends on it; can be changed:"
        f" {', '.join(CHANGEABLE)}"
    )


def _sizes(own: dict[str, Any], contextual: list[str]) -> tuple[int, int, int]:
    """Return channels, users and dimension, which may be left out if there are no policies that use contexts."""
    for key in ("channels", "users"):
        if own.get(key) is None:
            raise InputError(f"{key}: must be given, unless a scenario defines it")
    if contextual and own.get("dimension") is None:
        raise InputError(
            f"dimension: must be given, unless a scenario defines it, because policy {contextual[0]} uses contexts"
        )
    channels = validation.whole(own["channels"], "channels", 1, MAX_CHANNELS)
    users = validation.whole(own["users"], "users", 1, channels)
    dimension = 0 if own.get("dimension") is None else own["dimension"]
    return channels, users, validation.whole(dimension, "dimension", int(bool(contextual)), MAX_DIMENSION)


def _stored_in_files(scenario: Scenario) -> Scenario:
    """Return the scenario, which must not contain data that is only in memory: settings are stored as plain data."""
    if scenario.recording is not None and not scenario.recording.file:
        raise InputError("scenario.trace: is only in memory; save it with Trace.save and give the file")
    return scenario


def _sensing_errors(value: Any, K: int, names: tuple[str, ...]) -> SensingErrors | None:
    return None if value is None else read_sensing_errors(value, K, names, "sensing_errors")


def _channel_names(value: Any, scenario: Scenario | None, K: int) -> tuple[str, ...]:
    names = check_channel_names(value, K, "channel_names")
    defined = () if scenario is None else scenario.channel_names
    if names and defined and names != defined:
        raise InputError(f"channel_names = {shown(value)}: must be left out; the scenario defines them")
    return names or defined


def _absolute(name: str) -> str:
    """Return a policy's name without parameters, and with the absolute path of its file."""
    name = split_parameters(name)[0]
    file, colon, own = name.rpartition(".py:")
    return f"{Path(file).absolute()}.py:{own}" if colon else name


def _built_in(value: Any, field: str) -> str:
    """Check the name of a built-in policy that is not an oracle."""
    try:
        configured = policy(value) if isinstance(value, str) and ".py" not in value else None
    except InputError as error:
        raise InputError(f"{field}: {error}") from None
    if (
        configured is None
        or PARAMETERS in configured.policy.knows
        or configured.policy.source is not None
        or configured.policy.decentralised
    ):
        raise InputError(
            f"{field} = {shown(value)}: must be the name of a built-in policy that is not an oracle and selects for"
            " all users"
        )
    return str(value)


def _rewards(value: Any) -> tuple[float, float]:
    pair = validation.sequence(value, "rewards", "the smallest and the largest reward of a channel")
    if len(pair) == 2:
        low, high = (validation.number(number, "rewards", -1e6, 1e6) for number in pair)
        if low < high:
            return low, high
    raise InputError(f"rewards = {shown(value)}: must be two numbers, the smaller one first")


def _same_scenario(a: dict[str, Any] | None, b: dict[str, Any] | None) -> bool:
    """Return whether two scenarios give the same results; version 0.1 stored no channel names."""
    if a is None or b is None:
        return a is b
    return from_table(a, stored=True).identity() == from_table(b, stored=True).identity()
