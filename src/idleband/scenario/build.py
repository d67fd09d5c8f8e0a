"""Building a scenario from what a user wrote: a name, a dict, keywords or a TOML file; validated once, here."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from idleband import validation
from idleband.arrays import Flags, Floats
from idleband.errors import InputError, check_name, shown, unknown
from idleband.scenario.markov import gilbert_elliott, irreducible
from idleband.scenario.perturbation import PerturbationModel
from idleband.scenario.presets import PRESETS
from idleband.scenario.reward import HIGH, LOW, REWARDS
from idleband.scenario.scenario import Perturbation, Scenario
from idleband.scenario.user_models import model as find_model

SENSING = ("played", "all")
FEEDBACK = ("perturbation", "reward")
CONTEXTS = ("uniform",)

MAX_CHANNELS, MAX_STATES, MAX_ENTRIES = 100_000, 256, 1024
MIN_PROBABILITY = 1e-100


def scenario(source: "str | Path | Mapping[str, Any] | Scenario | None" = None, /, **changes: Any) -> Scenario:
    """A scenario from a preset's name, a dict, a path to a TOML file, another scenario, or keywords alone.

    Keywords change single settings of what comes first.

    >>> scenario("S1", users=3).users
    3
    >>> scenario(p01=[0.1, 0.2, 0.3], p10=[0.3, 0.2, 0.1], users=1, perturbation="none").K
    3
    """
    table: dict[str, Any]
    if source is None:
        table = {}
    elif isinstance(source, Scenario):
        table = source.to_dict()
        table["perturbation"]["kind"] = source.perturbation.model  # itself, whatever its name means by now
    elif isinstance(source, Mapping):
        table = dict(source)
    elif isinstance(source, Path) or str(source).endswith(".toml"):
        path = Path(source)
        table = located(validation.table(read_toml(path).get("scenario", {}), "scenario"), path.parent)
    else:
        table = {"base": source}
    return from_table(_merge(table, changes))


EXPERIMENT_FILE = "an experiment file has [scenario], [experiment] and [[policy]]"


def read_toml(path: Path, holds: str = EXPERIMENT_FILE) -> dict[str, Any]:
    """A TOML file as a dict, or one line that says what is wrong with it, and what it should hold."""
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start}") from None
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid TOML: {' '.join(str(error).split())}") from None
    if not data:
        raise InputError(f"{path}: empty; {holds}")
    return data


CHANNEL_KEYS = ("p01", "p10", "transition", "rewards", "good")
KEYS = (
    "name", "base", *CHANNEL_KEYS, "users", "sensing", "feedback", "reward", "context", "perturbation", "availability",
)  # fmt: skip


def located(table: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A table from a file in this folder, whose `file.py:name` is looked up from there."""

    def place(kind: Any) -> Any:
        return str(folder / kind) if isinstance(kind, str) and ".py:" in kind else kind

    given = table.get("perturbation")
    if isinstance(given, Mapping) and "kind" in given:
        return {**table, "perturbation": {**given, "kind": place(given["kind"])}}
    return {**table, "perturbation": place(given)} if given is not None else dict(table)


def from_table(table: Mapping[str, Any], find: Callable[[Any], PerturbationModel] = find_model) -> Scenario:
    """Validate a table as it stands under [scenario] in a file. `find` gives the model that a kind means."""
    validation.check_keys(table, KEYS, "scenario")
    if "base" in table:
        own_channels = [key for key in CHANNEL_KEYS if key in table]
        if own_channels:
            raise InputError(f"scenario.{own_channels[0]}: give either base or channels of your own, not both")
        table = _merge(_preset(table["base"]), {k: v for k, v in table.items() if k != "base"})
    transition, rewards, good = _channels(table)
    K = len(transition)
    context = validation.table(table.get("context", {}), "scenario.context")
    validation.check_keys(context, ("kind", "dimension"), "scenario.context")
    dimension = validation.whole(context.get("dimension", 8), "scenario.context.dimension", 1, MAX_ENTRIES)
    if "users" not in table:
        raise InputError(f"scenario.users is missing: how many channels to hand out in a slot, from 1 to {K}")
    reward = validation.choice(table.get("reward", "threshold"), "scenario.reward", REWARDS)
    return Scenario(
        name=check_name(table.get("name", "scenario"), "scenario.name"),
        transition=transition,
        rewards=rewards,
        good=good,
        users=validation.whole(table["users"], "scenario.users", 1, K),
        sensing=validation.choice(table.get("sensing", "played"), "scenario.sensing", SENSING),
        feedback=validation.choice(table.get("feedback", "perturbation"), "scenario.feedback", FEEDBACK),
        reward=reward,
        context=validation.choice(context.get("kind", "uniform"), "scenario.context.kind", CONTEXTS),
        dimension=dimension,
        perturbation=_perturbation(table.get("perturbation", {}), K, dimension, reward, find),
        availability=_availability(table.get("availability", ()), K),
    )


def _merge(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Changes over a table. A perturbation replaces the old one, it does not mix with it."""
    merged = dict(table)
    for key, value in changes.items():
        if key == "context" and isinstance(value, str):
            value = {"kind": value}
        old = merged.get(key)
        if key == "context" and isinstance(old, Mapping) and isinstance(value, Mapping):
            value = {**old, **value}
        merged[key] = value
    return merged


def _preset(base: Any) -> dict[str, Any]:
    if not isinstance(base, str) or base not in PRESETS:
        raise unknown("scenario", base, PRESETS)
    preset = PRESETS[base]
    return {"name": base, "p01": preset.p01, "p10": preset.p10, "users": 5}


def _channels(table: Mapping[str, Any]) -> tuple[tuple[Floats, ...], tuple[Floats, ...], tuple[Flags, ...]]:
    if "transition" in table:
        if "p01" in table or "p10" in table:
            raise InputError("scenario.transition: give either p01 and p10 or transition, not both")
        transition = _matrices(table["transition"])
        if "rewards" not in table:
            raise InputError("scenario.rewards is missing: the reward of each state, one list or one per channel")
    else:
        if "p01" not in table or "p10" not in table:
            missing = "p01" if "p01" not in table else "p10"
            raise InputError(f"scenario.{missing} is missing: give base, or p01 and p10, or transition and rewards")
        if "good" in table:
            raise InputError("scenario.good: only with transition; with p01 and p10 state 1 is the good one")
        p01, p10 = _probabilities(table["p01"], "p01"), _probabilities(table["p10"], "p10")
        if len(p01) != len(p10):
            raise InputError(f"scenario.p10: has {len(p10)} entries, p01 has {len(p01)}; one per channel in both")
        transition = tuple(gilbert_elliott(a, b) for a, b in zip(p01, p10, strict=True))
    rewards = _per_channel(table.get("rewards", (LOW, HIGH)), transition, "rewards")
    h = tuple(
        np.array([validation.number(x, f"scenario.rewards, channel {k + 1}", -1e6, 1e6) for x in row])
        for k, row in enumerate(rewards)
    )
    for k, row in enumerate(h):
        if len(row) != len(transition[k]):
            raise InputError(
                f"scenario.rewards, channel {k + 1}: has {len(row)} entries for {len(transition[k])} states"
            )
    if "good" in table:
        marks = _per_channel(table["good"], transition, "good")
        good = tuple(_good(row, len(transition[k]), k) for k, row in enumerate(marks))
    elif "transition" in table:
        good = tuple(np.asarray(row == row.max()) for row in h)
    else:
        good = tuple(np.array([False, True]) for _ in transition)
    return transition, h, good


def _probabilities(value: Any, field: str) -> list[float]:
    values = validation.sequence(value, f"scenario.{field}", "one probability per channel")
    if not 1 <= len(values) <= MAX_CHANNELS:
        raise InputError(f"scenario.{field}: has {len(values)} channels; must be from 1 to {MAX_CHANNELS}")
    return [_probability(p, f"scenario.{field}, channel {k + 1}") for k, p in enumerate(values)]


def _probability(value: Any, field: str) -> float:
    """Above 0, and not so close to it that a stationary distribution would overflow."""
    p = validation.number(value, field, 0, 1, above=True)
    return validation.number(value, field, MIN_PROBABILITY, 1) if p < MIN_PROBABILITY else p


def _matrices(value: Any) -> tuple[Floats, ...]:
    matrices = validation.sequence(value, "scenario.transition", "one matrix per channel")
    if not 1 <= len(matrices) <= MAX_CHANNELS:
        raise InputError(f"scenario.transition: has {len(matrices)} channels; must be from 1 to {MAX_CHANNELS}")
    result = []
    for k, matrix in enumerate(matrices):
        field = f"scenario.transition, channel {k + 1}"
        rows = [
            validation.sequence(row, field, "rows of probabilities")
            for row in validation.sequence(matrix, field, "rows")
        ]
        if not 1 <= len(rows) <= MAX_STATES or any(len(row) != len(rows) for row in rows):
            raise InputError(f"{field}: must be a square matrix of 1 to {MAX_STATES} states")
        P = np.array([[validation.number(p, field, 0, 1) for p in row] for row in rows])
        if ((P > 0) & (P < MIN_PROBABILITY)).any():
            raise InputError(f"{field}: holds a chance below {MIN_PROBABILITY:g}; must be 0, or at least that")
        off = np.abs(P.sum(axis=1) - 1)
        if off.max() > 1e-9:
            worst = int(off.argmax())
            raise InputError(f"{field}, state {worst}: probabilities add up to {P[worst].sum():.12g}, must be 1")
        if not irreducible(P):
            raise InputError(f"{field}: some state can never be reached from another; must be irreducible")
        # Two states as Gilbert-Elliott channels: they are kept as p01 and p10, and must come back to the last bit.
        result.append(gilbert_elliott(P[0, 1], P[1, 0]) if len(P) == 2 else P)
    return tuple(result)


def _per_channel(value: Any, transition: Sequence[Floats], field: str) -> list[list[Any]]:
    """One list for all channels, or a list of lists, one for each."""
    rows = validation.sequence(value, f"scenario.{field}", "of states, or one list per channel")
    if not rows or not isinstance(rows[0], list | tuple | np.ndarray):
        return [rows] * len(transition)
    if len(rows) != len(transition):
        raise InputError(f"scenario.{field}: has {len(rows)} lists for {len(transition)} channels")
    return [validation.sequence(row, f"scenario.{field}, channel {k + 1}", "of states") for k, row in enumerate(rows)]


def _good(states: Sequence[Any], S: int, k: int) -> Flags:
    flags = np.zeros(S, np.bool_)
    for s in states:
        flags[validation.whole(s, f"scenario.good, channel {k + 1}", 0, S - 1)] = True
    return flags


def _perturbation(value: Any, K: int, d: int, reward: str, find: Callable[[Any], PerturbationModel]) -> Perturbation:
    if isinstance(value, str | type | PerturbationModel):
        value = {"kind": value}
    where = "scenario.perturbation"
    table = validation.table(value, where)
    validation.check_keys(table, ("kind", "clear", "theta_norm", "theta", "per_channel"), where)
    model = find(table.get("kind", "linear"))
    if reward == "additive" and not model.bounded:
        raise InputError(
            f"model {model.name}: bounds is missing; the additive reward needs bounds = (least, most) of n"
        )
    strengths = [key for key in ("clear", "theta_norm", "theta") if key in table]
    if model.name == "none":
        if len(table) > ("kind" in table):
            other = next(key for key in table if key != "kind")
            raise InputError(f"{where}.{other}: means nothing where kind is none")
        return Perturbation(model, clear=None)
    if "theta_norm" in table and not model.scaled:
        raise InputError(f"{where}.theta_norm: only for the linear model; the {model.name} model takes clear or theta")
    if len(strengths) > 1:
        raise InputError(f"{where}.{strengths[1]}: give only one of clear, theta_norm and theta")
    if "theta" in table:
        if "per_channel" in table:
            raise InputError(f"{where}.per_channel: only for a drawn theta; give theta one list per channel instead")
        return Perturbation(model, clear=None, theta=_theta(table["theta"], model, K, d))
    per_channel = validation.flag(table.get("per_channel", False), f"{where}.per_channel")
    if "theta_norm" in table:
        norm = validation.number(table["theta_norm"], f"{where}.theta_norm", 0, 1)
        return Perturbation(model, clear=None, theta_norm=norm, per_channel=per_channel)
    clear = validation.number(table.get("clear", 0.7), f"{where}.clear", 0, 1, above=True)
    least, why = model.least_clear(d)
    if clear < least:
        raise InputError(f"{where}.clear = {clear:g}: must be at least {least:.4g}, {why}")
    return Perturbation(model, clear=clear, per_channel=per_channel)


def _theta(value: Any, model: PerturbationModel, K: int, d: int) -> tuple[tuple[float, ...], ...]:
    where, size = "scenario.perturbation.theta", model.size(d)
    numbers = "of numbers" if size is None else f"of {size} numbers"
    rows = validation.sequence(value, where, f"{numbers}, or one such list per channel")
    if not rows or not isinstance(rows[0], list | tuple | np.ndarray):
        rows = [rows]
    if len(rows) not in (1, K):
        raise InputError(f"{where}: has {len(rows)} lists; must be one, or one for each of {K} channels")
    for row in rows:
        if len(validation.sequence(row, where, numbers)) != size and size is not None:
            needs = "the dimension of the contexts" if model.scaled else f"for {model.formula} in {d} dimensions"
            raise InputError(f"{where}: has {len(row)} entries; must be {size}, {needs}")
    return tuple(tuple(validation.number(x, where, -model.most, model.most) for x in row) for row in rows)


def _availability(value: Any, K: int) -> tuple[tuple[bool, ...], ...]:
    where = "scenario.availability"
    rows = [
        validation.sequence(row, where, "rows of 0 and 1")
        for row in validation.sequence(value, where, "rows of 0 and 1")
    ]
    for i, row in enumerate(rows):
        if len(row) != K:
            raise InputError(f"{where}, row {i + 1}: has {len(row)} entries; must be {K}, one per channel")
        for entry in row:
            if not isinstance(entry, int | np.integer | np.bool_) or entry not in (0, 1):
                raise InputError(f"{where}, row {i + 1} = {shown(entry)}: must be 0 or 1")
    if all(all(row) for row in rows):
        return ()
    return tuple(tuple(bool(entry) for entry in row) for row in rows)
