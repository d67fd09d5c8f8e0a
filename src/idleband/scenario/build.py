"""Build a scenario from a preset, a dict, keywords or a TOML file."""

import tomllib
from collections.abc import Mapping, Sized
from pathlib import Path
from typing import Any, TypeAlias

from idleband import validation
from idleband.errors import InputError
from idleband.scenario.scenario import Scenario
from idleband.scenario.table import CHAIN_KEYS, from_table, merge
from idleband.trace.trace import Trace

ScenarioLike: TypeAlias = str | Path | Mapping[str, Any] | Scenario | Trace
"""What is accepted as a scenario: a preset, the path of a TOML file or a trace file, a dict, a Trace, or a Scenario."""

EXPERIMENT_FILE = "an experiment file has [scenario], [experiment] and [[policy]]"


def scenario(source: ScenarioLike | None = None, /, **changes: Any) -> Scenario:
    """Build a scenario from a preset, a dict, a TOML file, another scenario, or keywords alone.

    Parameters
    ----------
    source : str, Path, dict, Trace or Scenario, optional
        The name of a preset ("S1" to "S4"), the path of a TOML file with a [scenario] table or of a trace file
        (.parquet), a dict with the keys below, a trace, or a scenario. Without a source the keywords describe the whole
        scenario.
    p01, p10 : list of float
        Probabilities that a two-state channel becomes good, and bad, from one slot to the next; one per channel.
    transition : list of matrices
        Transition matrices, one per channel, instead of `p01` and `p10`.
    good : list of int, or one such list per channel
        The good states, those without a primary user; only with `transition`. The default is the states with the
        largest reward.
    rewards : list of float, or one such list per channel
        State rewards h(s), paid by the additive reward. The threshold reward does not use them; they may be left out.
    reward : {"threshold", "additive"}
        The threshold reward pays 1 if 1{s is good} - n > 0 and 0.1 otherwise, where n is the perturbation: without
        perturbation 1 in a good state and 0.1 in a bad one. The additive reward pays h(s) - n.
    users : int
        Number of channels that are selected in a slot, M.
    dwell : dict, optional
        Dwell times that are not geometric: `good` and `bad`, each a table or one table per channel with `kind` and its
        parameters: geometric (mean), negative-binomial (mean, shape), weibull (mean, shape), uniform (low, high),
        mixture of geometric distributions (weights, means) or empirical (hazard). Beside `p01` and `p10`, a mean that
        is left out is that of the chain.
    regimes : dict, optional
        `p01` and `p10` with one list per regime, and either `transition`, the transition matrix of the regime from slot
        to slot, or `at`, the slots in which the next regime begins.
    shocks : dict, optional
        Common shocks: `start` and `end`, probabilities per slot; `share`, the probability that a shock hits a channel;
        `channels` that can be hit.
    correlation : dict, optional
        Correlation of the random draws of channels: `common`, with all others, and `neighbours`.
    trace : str, Path, Trace or dict, optional
        A trace whose states are replayed instead of simulated; as a dict `file` and `block`, the slots per block of the
        bootstrap and of the shifts between replications.
    sensing_errors : dict, optional
        `missed` and `false_alarm`, probabilities that a busy channel is observed as idle and an idle one as busy; one
        number, or one per channel. Policies see observed states and the rewards that belong to them; results count true
        states.
    sensing_time : float, optional
        Share of a slot that sensing takes for each channel that a user senses: one if sensing is "played", K / M,
        rounded up, if it is "all". Rewards are earned in the rest of the slot.
    switching_cost : float, optional
        Reward lost for each selected channel that was not selected in the slot before.
    channel_names : list of str, optional
        Names of the channels, accepted wherever a channel is given by index. Presets have ch1 to ch10.
    perturbation : str, dict or class, optional
        "none", "linear", "quadratic", "cosine", file.py:NAME or a class registered with `register_perturbation`; or a
        dict with `kind` and one of `clear` (probability that n < 1 for uniform contexts), `theta_norm` and `theta`,
        `per_channel`, `drift`, the slots in which theta moves to a second draw, and `noise`, the standard deviation of
        normal noise that is added to n. The default is "linear" without noise, and "none" for a trace.
    context : dict, optional
        `kind`: "uniform" on the unit cube and independent, "ar1" with `correlation` from slot to slot and `margin`
        "uniform" or "normal", or "recorded" from a `file` (a trace file or .npy) or from the trace; and `dimension`.
    sensing : {"played", "all"}
        Whether policies observe the states of played channels afterwards, or of all channels beforehand.
    feedback : {"perturbation", "reward"}
        Whether the perturbation of a played channel is measured, or only its reward.
    availability : list of rows, optional
        Rows used in turn, slot by slot: 0 or 1 for each channel, or the names of the available channels. None: all
        channels are always available.
    name : str, optional
        Name of the scenario.

    Returns
    -------
    Scenario

    Raises
    ------
    InputError
        If a value is invalid. The message names the field, the value and what is allowed.

    Examples
    --------
    >>> import idleband as ib
    >>> ib.scenario("S1", users=3)
    Scenario(S1: 10 channels, 3 users)
    >>> ib.scenario(p01=[0.1, 0.2, 0.3], p10=[0.3, 0.2, 0.1], users=1, perturbation="none").K
    3
    >>> ib.scenario("S1", rewards=[0, 5], reward="additive", name="five").table_means[0].round(4)
    np.float64(0.5556)
    """
    table: dict[str, Any]
    if source is None:
        table = {}
    elif isinstance(source, Scenario):
        if not changes:
            return source
        table = source.to_dict()
        table["perturbation"]["kind"] = source.perturbation.model  # the name may have been registered again since
    elif isinstance(source, Mapping):
        table = dict(source)
    elif isinstance(source, Trace) or str(source).endswith(".parquet"):
        table = {"trace": source}
    elif isinstance(source, Path) or str(source).endswith(".toml"):
        path = Path(source)
        table = located(validation.table(read_toml(path).get("scenario", {}), "scenario"), path.parent)
    else:
        table = {"base": source}
    if "channel_names" in table and "channel_names" not in changes:
        counts = _channel_counts(changes)
        if any(count != len(table["channel_names"]) for count in counts):
            del table["channel_names"]  # names of other channels
    return from_table(merge(table, changes))


def _channel_counts(changes: Mapping[str, Any]) -> list[int]:
    """Return the numbers of channels for which there are new descriptions, one for each of them that is a list."""
    lists = [changes.get(key) for key in CHAIN_KEYS]
    if isinstance(changes.get("dwell"), Mapping):
        lists += [entry for entry in changes["dwell"].values() if not isinstance(entry, Mapping)]
    if isinstance(changes.get("regimes"), Mapping):
        rows = changes["regimes"].get("p01")
        lists += rows[:1] if isinstance(rows, list | tuple) else []
    return [len(entry) for entry in lists if isinstance(entry, Sized)]


def read_toml(path: Path, contents: str = EXPERIMENT_FILE) -> dict[str, Any]:
    """Return a TOML file as a dict, or raise an InputError of one line; `contents` describes what it should contain."""
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start}") from None
    except (OSError, ValueError) as error:  # ValueError: not a possible file name
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid TOML: {' '.join(str(error).split())}") from None
    if not data:
        raise InputError(f"{path}: empty; {contents}")
    return data


def with_data_files(table: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return a scenario table from a file in this folder, with its trace and contexts relative to the folder."""
    table = dict(table)
    for key in ("trace", "context"):
        entry = table.get(key)
        if key == "trace" and isinstance(entry, str):
            table[key] = str(folder / entry)
        elif isinstance(entry, Mapping) and isinstance(entry.get("file"), str):
            table[key] = {**entry, "file": str(folder / entry["file"])}
    return table


def located(table: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return a scenario table from a file in this folder, with the files that it names relative to the folder."""

    def place(kind: Any) -> Any:
        return str(folder / kind) if isinstance(kind, str) and ".py:" in kind else kind

    table = with_data_files(table, folder)
    given = table.get("perturbation")
    if isinstance(given, Mapping) and "kind" in given:
        return {**table, "perturbation": {**given, "kind": place(given["kind"])}}
    return {**table, "perturbation": place(given)} if given is not None else dict(table)
