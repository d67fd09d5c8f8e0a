"""Validate the table that describes a scenario, as it is written under [scenario] in a file."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from idleband import validation
from idleband.arrays import Flags, Floats
from idleband.channels import channel_index, channel_text, check_channel_names
from idleband.errors import InputError, check_name, counted, shown, unknown
from idleband.scenario.contexts import read_contexts
from idleband.scenario.correlation import read_correlation
from idleband.scenario.dwell_times import DwellTimes, read_dwell_times
from idleband.scenario.markov import gilbert_elliott, irreducible
from idleband.scenario.noise import MAX_NOISE, MIN_NOISE, check_clear
from idleband.scenario.perturbation import PerturbationModel
from idleband.scenario.presets import PRESETS
from idleband.scenario.recording import Recording, read_recording
from idleband.scenario.regimes import Regimes, read_regimes
from idleband.scenario.reward import HIGH, LOW, REWARDS
from idleband.scenario.scenario import Perturbation, Scenario
from idleband.scenario.sensing_errors import read_sensing_errors
from idleband.scenario.shocks import read_shocks
from idleband.scenario.uncoordinated import merge_users, read_users
from idleband.scenario.user_models import model as find_model

SENSING = ("played", "all")
FEEDBACK = ("perturbation", "reward")

MAX_CHANNELS, MAX_STATES = 100_000, 256
MAX_DRIFT = 10**10  # slots
MIN_PROBABILITY = 1e-100

CHAIN_KEYS = ("p01", "p10", "transition")
CHANNEL_KEYS = (*CHAIN_KEYS, "good")
# Each of these describes the states of the channels completely, apart from a base or p01 and p10 for mean dwell times.
PROCESS_KEYS = ("dwell", "regimes", "trace")
ADDED_KEYS = ("shocks", "correlation", "sensing_errors")  # None: not present, as in a change of another scenario
KEYS = (
    "name", "base", *CHANNEL_KEYS, *PROCESS_KEYS, *ADDED_KEYS, "rewards", "channel_names", "users",
    "sensing", "sensing_time", "switching_cost", "feedback", "reward", "context", "perturbation",
    "availability",
)  # fmt: skip


def from_table(
    table: Mapping[str, Any], find: Callable[[Any], PerturbationModel] = find_model, *, stored: bool = False
) -> Scenario:
    """Return the scenario that a table describes.

    `find` returns the perturbation model of a kind. `stored` accepts state rewards that the threshold reward does not
    pay, as version 0.1 did.
    """
    validation.check_keys(table, KEYS, "scenario")
    table = {key: value for key, value in table.items() if value is not None or key not in PROCESS_KEYS + ADDED_KEYS}
    if "base" in table:
        channel_keys = [key for key in (*CHANNEL_KEYS, "trace") if key in table]
        if channel_keys:
            raise InputError(f"scenario.{channel_keys[0]}: give either base or channels, not both")
        table = merge(_preset(table["base"]), {k: v for k, v in table.items() if k != "base"})
    reward = validation.choice(table.get("reward", "threshold"), "scenario.reward", REWARDS)
    channels = _process(table)
    names, transition, good, rewards = _channels(table, reward, channels)
    recording = channels.recording
    K = len(transition)
    recorded_rewards = recording is not None and recording.trace.reward is not None and reward == "additive"
    if recorded_rewards and "rewards" in table:
        raise InputError("scenario.rewards: must be left out; the trace has recorded rewards")
    if recorded_rewards:
        assert recording is not None
        rewards = recording.state_rewards()
    if reward == "threshold" and not stored:
        _check_threshold(rewards, good, names)
    given_context = validation.table(table.get("context", {}), "scenario.context")
    recorded = None if recording is None else recording.trace.contexts
    contexts = read_contexts(given_context, K, None if recorded is None else np.ascontiguousarray(recorded, float))
    if reward == "additive" and contexts.margin == "normal":
        raise InputError("scenario.context.margin = normal: the additive reward needs bounded contexts; use uniform")
    if "users" not in table:
        raise InputError(f"scenario.users is missing: the number of channels to select in a slot, from 1 to {K}")
    users, uncoordinated = read_users(table["users"], K, names)
    sensing = validation.choice(table.get("sensing", "played"), "scenario.sensing", SENSING)
    errors = None
    if "sensing_errors" in table:
        _check_two_state(transition, good, "sensing_errors")
        errors = read_sensing_errors(table["sensing_errors"], K, names, "scenario.sensing_errors")
    if errors is not None and recorded_rewards:
        raise InputError("scenario.sensing_errors: not used with recorded rewards; leave it out, or use threshold")
    if "shocks" in table:
        _check_two_state(transition, good, "shocks")
    default_model = {"kind": "none"} if recording is not None else {}
    found = Scenario(
        name=check_name(table.get("name", _default_name(recording)), "scenario.name"),
        transition=transition,
        rewards=rewards,
        good=good,
        users=users,
        sensing=sensing,
        feedback=validation.choice(table.get("feedback", "perturbation"), "scenario.feedback", FEEDBACK),
        reward=reward,
        contexts=contexts,
        perturbation=_perturbation(table.get("perturbation", default_model), K, contexts.dimension, reward, find),
        availability=_availability(table.get("availability"), K, names),
        channel_names=names,
        dwell=channels.dwell,
        regimes=channels.regimes,
        shocks=read_shocks(table["shocks"], K, names) if "shocks" in table else None,
        correlation=read_correlation(table["correlation"]) if "correlation" in table else None,
        recording=recording,
        sensing_errors=errors,
        sensing_time=validation.number(table.get("sensing_time", 0.0), "scenario.sensing_time", 0, 1),
        switching_cost=validation.number(table.get("switching_cost", 0.0), "scenario.switching_cost", 0, 1e6),
        uncoordinated=uncoordinated,
    )
    if found.reward_factor <= 0.0:
        slots = f"{found.sensing_time:g} x {math.ceil(K / users)}" if sensing == "all" else f"{found.sensing_time:g}"
        raise InputError(f"scenario.sensing_time: sensing takes {slots} of a slot; must be less than the whole slot")
    return found


def merge(table: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with changes; contexts and users are merged key by key, everything else is replaced.

    Channels are described in one way, so that another description of them removes the present one.
    """
    merged = dict(table)
    if any(changes.get(key) is not None for key in ("regimes", "trace")):
        replaced = {*CHANNEL_KEYS, *PROCESS_KEYS, *(("channel_names", "rewards") if "trace" in changes else ())}
        merged = {key: value for key, value in merged.items() if key not in replaced}
        context = merged.get("context")
        if "trace" in changes and isinstance(context, Mapping) and context.get("kind") == "recorded":
            merged = {key: value for key, value in merged.items() if key != "context" or "file" in context}
    elif any(changes.get(key) is not None for key in CHAIN_KEYS):
        merged = {key: value for key, value in merged.items() if key not in PROCESS_KEYS}
    elif changes.get("dwell") is not None:  # p01 and p10 remain for the means
        replaced = {"transition", "good", *PROCESS_KEYS}
        merged = {key: value for key, value in merged.items() if key not in replaced}
    for key, value in changes.items():
        if key == "context" and isinstance(value, str):
            value = {"kind": value}
        old = merged.get(key)
        if key == "context" and isinstance(old, Mapping) and isinstance(value, Mapping):
            value = _merged_context(old, value)
        if key == "users":
            value = merge_users(old, value)
        merged[key] = value
    return merged


def _merged_context(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return contexts with changes; of another kind only the dimension remains, unless recorded contexts define it."""
    kind = old.get("kind", "uniform")
    if new.get("kind", kind) == kind:
        return {**old, **new}
    kept = {key: value for key, value in old.items() if key == "dimension" and new["kind"] != "recorded"}
    return {**kept, **new}


def _preset(base: Any) -> dict[str, Any]:
    if not isinstance(base, str) or base not in PRESETS:
        raise unknown("scenario", base, PRESETS)
    preset = PRESETS[base]
    return {"name": base, "p01": preset.p01, "p10": preset.p10, "channel_names": preset.channel_names, "users": 5}


# --- channels --------------------------------------------------------------------------------------------------------


class _Process(NamedTuple):
    """What describes the states of channels, other than Markov chains; at most one of them."""

    dwell: DwellTimes | None = None
    regimes: Regimes | None = None
    recording: Recording | None = None


def _process(table: Mapping[str, Any]) -> _Process:
    """Return dwell times, regimes or the recording of a table."""
    present = [key for key in PROCESS_KEYS if key in table]
    if len(present) > 1:
        raise InputError(f"scenario.{present[1]}: give only one of {', '.join(PROCESS_KEYS)}")
    if not present:
        return _Process()
    key = present[0]
    others = ("transition", "good") if key == "dwell" else CHANNEL_KEYS
    if key == "trace":
        others = (*others, "shocks", "correlation")
    for other in others:
        if other in table:
            raise InputError(f"scenario.{other}: not used with {key}; leave it out")
    if key == "trace":
        return _Process(recording=read_recording(table[key]))
    if key == "regimes":
        return _Process(regimes=read_regimes(table[key]))
    means, K = None, None
    if "p01" in table or "p10" in table:
        transition = _channels({**table, "rewards": None}, "threshold", _Process())[1]
        K = len(transition)
        means = {"bad": [1.0 / float(P[0, 1]) for P in transition], "good": [1.0 / float(P[1, 0]) for P in transition]}
    return _Process(dwell=read_dwell_times(table[key], K, table.get("channel_names"), means))


def _default_name(recording: Recording | None) -> str:
    """Return the name of a scenario that has none: that of its trace file, without characters that are not allowed."""
    stem = "" if recording is None else re.sub(r"[^A-Za-z0-9._-]+", "-", Path(recording.file).stem).strip("-._")
    return stem[:60] or ("trace" if recording else "scenario")


def _check_two_state(transition: Sequence[Floats], good: Sequence[Flags], key: str) -> None:
    if any(len(P) != 2 or list(flags) != [False, True] for P, flags in zip(transition, good, strict=True)):
        raise InputError(f"scenario.{key}: only for channels with two states, of which state 1 is good")


def _channels(
    table: Mapping[str, Any], reward: str, process: _Process
) -> tuple[tuple[str, ...], tuple[Floats, ...], tuple[Flags, ...], tuple[Floats, ...]]:
    """Return names, transition matrices, good states and state rewards."""
    if process != _Process():
        names, transition = _of_process(table, process)
    elif "transition" in table:
        if "p01" in table or "p10" in table:
            raise InputError("scenario.transition: give either p01 and p10 or transition, not both")
        matrices = _one_per_channel(table["transition"], "transition", "matrix")
        names = check_channel_names(table.get("channel_names"), len(matrices), "scenario.channel_names")
        transition = tuple(_matrix(P, f"scenario.transition, {channel_text(k, names)}") for k, P in enumerate(matrices))
    else:
        if "p01" not in table or "p10" not in table:
            missing = "p01" if "p01" not in table else "p10"
            raise InputError(
                f"scenario.{missing} is missing: give base, or p01 and p10, or one of transition,"
                f" {', '.join(PROCESS_KEYS)}"
            )
        if "good" in table:
            raise InputError("scenario.good: only with transition; with p01 and p10 state 1 is good")
        given = {key: _one_per_channel(table[key], key, "probability") for key in ("p01", "p10")}
        count, other = len(given["p01"]), len(given["p10"])
        if count != other:
            raise InputError(f"scenario.p10: has {counted(other, 'entry')}, p01 has {count}; one per channel in both")
        names = check_channel_names(table.get("channel_names"), count, "scenario.channel_names")
        p01, p10 = (
            [_probability(p, f"scenario.{key}, {channel_text(k, names)}") for k, p in enumerate(values)]
            for key, values in given.items()
        )
        transition = tuple(gilbert_elliott(a, b) for a, b in zip(p01, p10, strict=True))
    good = _good_states(table, transition, names)
    h = _state_rewards(table, transition, names)
    if good is None:
        if h is None:
            missing = "good" if reward == "threshold" else "rewards"
            meaning = "the good states" if reward == "threshold" else "the reward of each state"
            raise InputError(f"scenario.{missing} is missing: {meaning}, one list or one per channel")
        good = tuple(np.asarray(row == row.max()) for row in h)
    if h is None:
        if reward == "additive" and "transition" in table:
            raise InputError("scenario.rewards is missing: the reward of each state, one list or one per channel")
        h = tuple(np.where(row, HIGH, LOW) for row in good)
    return names, transition, good, h


def _of_process(table: Mapping[str, Any], process: _Process) -> tuple[tuple[str, ...], tuple[Floats, ...]]:
    """Return names and long-run transition matrices of channels that are not described as Markov chains."""
    if process.recording is not None:
        transition, names = process.recording.transition(), process.recording.trace.channel_names
        given = table.get("channel_names")
        return check_channel_names(given, len(transition), "scenario.channel_names") or names, transition
    if process.regimes is not None:
        transition = process.regimes.marginal_transition()
    else:
        assert process.dwell is not None
        pairs = zip(process.dwell.bad, process.dwell.good, strict=True)
        transition = tuple(gilbert_elliott(1.0 / bad.mean, 1.0 / good.mean) for bad, good in pairs)
    names = check_channel_names(table.get("channel_names"), len(transition), "scenario.channel_names")
    return names, transition


def _check_threshold(rewards: Sequence[Floats], good: Sequence[Flags], names: Sequence[str]) -> None:
    """Refuse state rewards that the threshold reward would not pay."""
    for k, (row, flags) in enumerate(zip(rewards, good, strict=True)):
        if not np.array_equal(row, np.where(flags, HIGH, LOW)):
            raise InputError(
                f"scenario.rewards, {channel_text(k, names)} = {shown(row.tolist())}: the threshold reward pays"
                f' {HIGH:g} in good states and {LOW:g} in bad ones; leave rewards out, or set reward = "additive",'
                " which pays state rewards"
            )


def _one_per_channel(value: Any, field: str, what: str) -> list[Any]:
    values = validation.sequence(value, f"scenario.{field}", f"one {what} per channel")
    if not 1 <= len(values) <= MAX_CHANNELS:
        raise InputError(f"scenario.{field}: has {counted(len(values), 'channel')}; must be from 1 to {MAX_CHANNELS}")
    return values


def _probability(value: Any, field: str) -> float:
    """Return a probability above 0 and large enough for a stationary distribution without overflow."""
    p = validation.number(value, field, 0, 1, above=True)
    return validation.number(value, field, MIN_PROBABILITY, 1) if p < MIN_PROBABILITY else p


def _matrix(value: Any, field: str) -> Floats:
    rows = [
        validation.sequence(row, field, "rows of probabilities") for row in validation.sequence(value, field, "rows")
    ]
    if not 1 <= len(rows) <= MAX_STATES or any(len(row) != len(rows) for row in rows):
        raise InputError(f"{field}: must be a square matrix of 1 to {MAX_STATES} states")
    P = np.array([[validation.number(p, field, 0, 1) for p in row] for row in rows])
    if ((P > 0) & (P < MIN_PROBABILITY)).any():
        raise InputError(f"{field}: contains a probability below {MIN_PROBABILITY:g}; must be 0, or at least that")
    off = np.abs(P.sum(axis=1) - 1)
    if off.max() > 1e-9:
        worst = int(off.argmax())
        raise InputError(f"{field}, state {worst}: probabilities add up to {P[worst].sum():.12g}, must be 1")
    if not irreducible(P):
        raise InputError(f"{field}: some state can never be reached from another; must be irreducible")
    # Two states are built as a Gilbert-Elliott channel: they are stored as p01 and p10 and must be read back exactly.
    return gilbert_elliott(P[0, 1], P[1, 0]) if len(P) == 2 else P


def _lists(value: Any, transition: Sequence[Floats], field: str, names: Sequence[str]) -> list[list[Any]]:
    """Return one list per channel from one list for all channels or a list of lists."""
    rows = validation.sequence(value, f"scenario.{field}", "of states, or one list per channel")
    if not rows or not isinstance(rows[0], list | tuple | np.ndarray):
        return [rows] * len(transition)
    if len(rows) != len(transition):
        raise InputError(
            f"scenario.{field}: has {counted(len(rows), 'list')} for {counted(len(transition), 'channel')}"
        )
    return [
        validation.sequence(row, f"scenario.{field}, {channel_text(k, names)}", "of states")
        for k, row in enumerate(rows)
    ]


def _state_rewards(
    table: Mapping[str, Any], transition: Sequence[Floats], names: Sequence[str]
) -> tuple[Floats, ...] | None:
    if table.get("rewards") is None:
        return None
    found = []
    for k, row in enumerate(_lists(table["rewards"], transition, "rewards", names)):
        field = f"scenario.rewards, {channel_text(k, names)}"
        h = np.array([validation.number(x, field, -1e6, 1e6) for x in row])
        if len(h) != len(transition[k]):
            raise InputError(f"{field}: has {counted(len(h), 'entry')} for {counted(len(transition[k]), 'state')}")
        found.append(h)
    return tuple(found)


def _good_states(
    table: Mapping[str, Any], transition: Sequence[Floats], names: Sequence[str]
) -> tuple[Flags, ...] | None:
    if "transition" not in table:
        return tuple(np.array([False, True]) for _ in transition)
    if table.get("good") is None:
        return None
    found = []
    for k, row in enumerate(_lists(table["good"], transition, "good", names)):
        flags = np.zeros(len(transition[k]), np.bool_)
        for s in row:
            flags[validation.whole(s, f"scenario.good, {channel_text(k, names)}", 0, len(flags) - 1)] = True
        found.append(flags)
    return tuple(found)


def _availability(value: Any, K: int, names: Sequence[str]) -> tuple[tuple[bool, ...], ...]:
    """Return rows of flags; an empty tuple means that all channels are always available."""
    if value is None:
        return ()
    where = "scenario.availability"
    kind = "rows of 0 and 1, or of channel names"
    rows = [_row(row, f"{where}, row {i}", K, names) for i, row in enumerate(validation.sequence(value, where, kind))]
    return () if all(all(row) for row in rows) else tuple(rows)


def _row(value: Any, where: str, K: int, names: Sequence[str]) -> tuple[bool, ...]:
    entries = validation.sequence(value, where, "of 0 and 1, or of channel names")
    if entries and all(isinstance(entry, str) for entry in entries):
        listed = {channel_index(entry, K, names, where) for entry in entries}
        return tuple(k in listed for k in range(K))
    if len(entries) != K:
        raise InputError(f"{where}: has {counted(len(entries), 'entry')}; must be {K}, one per channel")
    for entry in entries:
        if not isinstance(entry, int | np.integer | np.bool_) or entry not in (0, 1):
            raise InputError(f"{where} = {shown(entry)}: must be 0 or 1")
    return tuple(bool(entry) for entry in entries)


# --- perturbation ----------------------------------------------------------------------------------------------------


def _perturbation(value: Any, K: int, d: int, reward: str, find: Callable[[Any], PerturbationModel]) -> Perturbation:
    if isinstance(value, str | type | PerturbationModel):
        value = {"kind": value}
    where = "scenario.perturbation"
    table = validation.table(value, where)
    validation.check_keys(table, ("kind", "clear", "theta_norm", "theta", "per_channel", "drift", "noise"), where)
    model = find(table.get("kind", "linear"))
    if reward == "additive" and not model.bounded:
        raise InputError(
            f"perturbation model {model.name}: bounds is missing; the additive reward needs bounds = (low, high) of n"
        )
    strengths = [key for key in ("clear", "theta_norm", "theta") if key in table]
    if model.name == "none":
        if len(table) > ("kind" in table):
            other = next(key for key in table if key != "kind")
            raise InputError(f"{where}.{other}: not used where kind is none")
        return Perturbation(model, clear=None)
    if "theta_norm" in table and not model.scaled:
        raise InputError(f"{where}.theta_norm: only for the linear model; the {model.name} model takes clear or theta")
    if len(strengths) > 1:
        raise InputError(f"{where}.{strengths[1]}: give only one of clear, theta_norm and theta")
    sigma = _noise(table.get("noise", 0.0), f"{where}.noise")
    drift = 0
    if "drift" in table:
        drift = validation.whole(table["drift"], f"{where}.drift", 1, MAX_DRIFT)
    if "theta" in table:
        if drift:
            raise InputError(f"{where}.drift: only for a drawn theta")
        if "per_channel" in table:
            raise InputError(f"{where}.per_channel: only for a drawn theta; give theta one list per channel instead")
        return Perturbation(model, clear=None, theta=_theta(table["theta"], model, K, d), noise=sigma)
    per_channel = validation.flag(table.get("per_channel", False), f"{where}.per_channel")
    if "theta_norm" in table:
        norm = validation.number(table["theta_norm"], f"{where}.theta_norm", 0, 1)
        return Perturbation(model, None, norm, per_channel=per_channel, drift=drift, noise=sigma)
    clear = validation.number(table.get("clear", 0.7), f"{where}.clear", 0, 1, above=True)
    check_clear(model, d, clear, sigma)
    return Perturbation(model, clear, per_channel=per_channel, drift=drift, noise=sigma)


def _noise(value: Any, field: str) -> float:
    """Return the standard deviation of the noise, which is 0 or large enough for the sums of `scenario.noise`."""
    sigma = validation.number(value, field, 0.0, MAX_NOISE)
    if 0.0 < sigma < MIN_NOISE:
        raise InputError(f"{field} = {shown(value)}: must be 0, or from {MIN_NOISE:g} to {MAX_NOISE:g}")
    return sigma


def _theta(value: Any, model: PerturbationModel, K: int, d: int) -> tuple[tuple[float, ...], ...]:
    where, size = "scenario.perturbation.theta", model.size(d)
    numbers = "of numbers" if size is None else f"of {size} numbers"
    rows = validation.sequence(value, where, f"{numbers}, or one such list per channel")
    if not rows or not isinstance(rows[0], list | tuple | np.ndarray):
        rows = [rows]
    if len(rows) not in (1, K):
        raise InputError(f"{where}: has {counted(len(rows), 'list')}; must be one, or one for each of {K} channels")
    for row in rows:
        if len(validation.sequence(row, where, numbers)) != size and size is not None:
            needs = "the dimension of the contexts" if model.scaled else f"for {model.formula} in {d} dimensions"
            raise InputError(f"{where}: has {counted(len(row), 'entry')}; must be {size}, {needs}")
    return tuple(tuple(validation.number(x, where, -model.max_entry, model.max_entry) for x in row) for row in rows)
