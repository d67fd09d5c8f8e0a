"""What an allocator is made from: validated, and as data that a file or a request can hold."""

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from idleband import validation
from idleband.errors import InputError, shown, unknown
from idleband.policies.configured import split_parameters
from idleband.policies.knowledge import setup_of, truth_of
from idleband.policies.protocol import CONTEXTS_SEEN, PARAMETERS, Setup, Truth
from idleband.policies.registry import ConfiguredPolicy, policy
from idleband.scenario.build import scenario as make_scenario
from idleband.scenario.reward import HIGH, LOW
from idleband.scenario.scenario import Scenario
from idleband.simulation.path import path_parameters
from idleband.simulation.simulate import MAX_REPLICATIONS, MAX_SEED

MAX_CHANNELS, MAX_DIMENSION, MAX_PATIENCE = 10_000, 10_000, 10**6
# That models of contexts may take, and decisions which still wait for feedback: together they must fit into a
# snapshot, which SQLite limits to 10^9 bytes.
MAX_MODELS, MAX_RECORDS = 2**29, 2**28
PATIENCE = 1000  # slots, unless they would take too much memory
FEEDBACKS = ("reward", "perturbation")

NOT_SET = ("policy", "source")  # fields that are no settings

# What a scenario says itself.
SAID_BY_SCENARIO = ("channels", "users", "dimension", "feedback", "rewards")


@dataclass(frozen=True)
class Settings:
    """An allocator's settings, as `Allocator` takes them."""

    policy: str
    parameters: dict[str, Any]
    channels: int
    users: int
    dimension: int
    feedback: str
    rewards: tuple[float, float]
    scenario: dict[str, Any] | None
    seed: int
    replication: int
    patience: int
    fallback: str
    incumbent: str | None
    deadline: float | None
    collision_limit: float
    source: str | None  # of a user's own policy

    @classmethod
    def checked(cls, given: dict[str, Any]) -> "Settings":
        """From what a user gave: every key that is not one of ours is a parameter of the policy."""
        given = dict(given)
        named_policy = given.pop("policy")
        own = {key: given.pop(key) for key in cls.__dataclass_fields__ if key in given and key not in NOT_SET}
        parameters = {} if own.get("parameters") is None else validation.table(own["parameters"], "parameters")
        for key in parameters:
            if key in given:
                raise InputError(f"parameters: {key} is given beside them, too")
        if isinstance(named_policy, str):
            named_policy, written = split_parameters(named_policy)
            for key in written.keys() & {name.removesuffix("_") for name in (*given, *parameters)}:
                raise InputError(f"policy {named_policy}: {key} is given twice")
            parameters = {**parameters, **written}
        known = policy(named_policy).policy.parameters
        for key in given:
            if key.removesuffix("_") not in known:  # lambda_ is a parameter, too
                names = (*(name for name in cls.__dataclass_fields__ if name not in NOT_SET), *known)
                raise unknown("setting, or parameter of the policy,", key, names)
        case = policy(named_policy, **parameters, **given)
        world = own.get("scenario")
        if world is not None:
            world = make_scenario(world)
            for key in SAID_BY_SCENARIO:
                if own.get(key) is not None:
                    raise InputError(f"{key} = {shown(own[key])}: leave it out, the scenario says it")
            size = world.K, world.users, world.dimension
        else:
            for key in ("channels", "users", "dimension"):
                if own.get(key) is None:
                    raise InputError(f"{key}: must be given, or else a scenario that says it")
            channels = validation.whole(own["channels"], "channels", 1, MAX_CHANNELS)
            users = validation.whole(own["users"], "users", 1, channels)
            size = channels, users, validation.whole(own["dimension"], "dimension", 1, MAX_DIMENSION)
        K, _, d = size
        if CONTEXTS_SEEN in case.policy.knows and 8 * K * (d + 1) ** 2 > MAX_MODELS:
            raise InputError(
                f"dimension = {d}: models of {K} channels would take {8 * K * (d + 1) ** 2 / 2**30:.1f} GiB; must be at"
                f" most {MAX_MODELS / 2**30:g} GiB"
            )
        most = max(1, min(MAX_PATIENCE, MAX_RECORDS // (8 * K * (d + 8))))
        deadline = own.get("deadline")
        return cls(
            policy=_lasting(named_policy) if isinstance(named_policy, str) else case.policy.name,
            parameters=case.values,
            channels=K,
            users=size[1],
            dimension=d,
            feedback=world.feedback
            if world
            else validation.choice(own.get("feedback", "reward"), "feedback", FEEDBACKS),
            rewards=(LOW, HIGH) if world else _pair(own.get("rewards", (LOW, HIGH))),
            scenario=world.to_dict() if world else None,
            seed=validation.whole(own.get("seed", 0), "seed", 0, MAX_SEED),
            replication=validation.whole(own.get("replication", 0), "replication", 0, MAX_REPLICATIONS),
            patience=validation.whole(own.get("patience", min(PATIENCE, most)), "patience", 1, most),
            fallback=_plain(own.get("fallback", "mp-ucb"), "fallback"),
            incumbent=None if own.get("incumbent") is None else _plain(own["incumbent"], "incumbent"),
            deadline=None if deadline is None else validation.number(deadline, "deadline", 0.0, 3600.0, above=True),
            collision_limit=validation.number(own.get("collision_limit", 1.0), "collision_limit", 0.0, 1.0),
            source=case.policy.source,
        )

    @classmethod
    def restored(cls, data: dict[str, Any]) -> "Settings":
        """From `as_data`, checked again: the file may have been written by hand."""
        source = data.pop("source", None)
        if data.get("scenario") is not None:
            data = {key: value for key, value in data.items() if key not in SAID_BY_SCENARIO}
        settings = cls.checked(data)
        if settings.source != source:
            raise InputError(f"policy {settings.policy}: its file has changed since it was used here; put it back")
        return settings

    def difference(self, other: "Settings") -> str:
        """In words, the first thing that is not the same in another; empty if all is."""
        mine, theirs = self.as_data(), other.as_data()
        for key, value in mine.items():
            if value != theirs[key]:
                return f"{key} = {shown(value)}, and not {shown(theirs[key])}"
        return ""

    def as_data(self) -> dict[str, Any]:
        return asdict(self)

    @cached_property
    def case(self) -> ConfiguredPolicy:
        return policy(self.policy, **self.parameters)

    @cached_property
    def world(self) -> Scenario | None:
        return None if self.scenario is None else make_scenario(self.scenario)

    @cached_property
    def known(self) -> Setup:
        if self.world is not None:
            return setup_of(self.world, ())
        K, (low, high) = self.channels, self.rewards
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
            params=(),
        )

    @cached_property
    def theta(self) -> npt.NDArray[np.float64] | None:
        """The model's parameters, where there is a scenario."""
        return None if self.world is None else path_parameters(self.world, self.seed, self.replication)[0]

    @cached_property
    def truth(self) -> Truth | None:
        """What an oracle is told."""
        if self.world is None or PARAMETERS not in self.case.policy.knows:
            return None
        return truth_of(self.world, *path_parameters(self.world, self.seed, self.replication))


def _lasting(name: str) -> str:
    """A policy's name that means the same in every folder."""
    file, colon, own = name.rpartition(".py:")
    return f"{Path(file).absolute()}.py:{own}" if colon else name


def _plain(value: Any, field: str) -> str:
    """A policy of the package, by its name alone, that needs to know no parameters."""
    try:
        case = policy(value) if isinstance(value, str) and ".py" not in value else None
    except InputError as error:
        raise InputError(f"{field}: {error}") from None
    if case is None or PARAMETERS in case.policy.knows or case.policy.source is not None:
        raise InputError(f"{field} = {shown(value)}: must be the name of a policy of the package that is not an oracle")
    return str(value)


def _pair(value: Any) -> tuple[float, float]:
    pair = validation.sequence(value, "rewards", "what a channel pays if it is busy or spoilt, and if it is free")
    if len(pair) == 2:
        low, high = (validation.number(number, "rewards", -1e6, 1e6) for number in pair)
        if low < high:
            return low, high
    raise InputError(f"rewards = {shown(value)}: must be two numbers, the smaller one first")
