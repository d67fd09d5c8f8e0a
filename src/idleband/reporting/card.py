"""Description of a scenario on one screen."""

from typing import Any

import numpy as np

from idleband.channels import channel_label
from idleband.reporting.text import definitions, paragraph, table
from idleband.scenario.scenario import Scenario
from idleband.scenario.upper_bound import bound


def card(scenario: Scenario, seed: int = 0) -> dict[str, Any]:
    """Return the properties of a scenario; where theta is drawn, those of replication 0 under the seed.

    Channels are indices from 0.
    """
    theta = scenario.theta(seed, 0)
    means, error = scenario.mean_rewards(theta)
    clear, clear_error = scenario.probabilities_below(theta, 1.0)
    means_without = scenario.table_means
    long_run: dict[str, Any] = {}
    if scenario.two_state and not scenario.markov:
        P = np.array(scenario.marginal_transition)
        long_run = {"long_run_p01": P[:, 0, 1].tolist(), "long_run_p10": P[:, 1, 0].tolist()}
    return {
        **scenario.to_dict(),
        **long_run,
        "channels": scenario.K,
        "theta": theta.tolist() if len({tuple(row) for row in theta.tolist()}) > 1 else theta[0].tolist(),
        "theta_drawn": scenario.perturbation.drawn,
        "model": scenario.perturbation.model.formula,
        "stationary": [distribution.tolist() for distribution in scenario.stationary_distributions],
        "good_share": scenario.good_shares.tolist(),
        "autocorrelation": scenario.autocorrelations.tolist(),
        "mean_without_perturbation": means_without.tolist(),
        "mean_with_perturbation": means.tolist(),
        "mean_standard_error": error,
        "clear": clear.tolist(),
        "clear_standard_error": clear_error,
        "best_without_perturbation": scenario.best(means_without),
        "best_with_perturbation": scenario.best(means),
        "bound_without_perturbation": bound(scenario),
        "bound_with_perturbation": bound(scenario, theta),
    }


def card_text(data: dict[str, Any]) -> str:
    """Return the description for a terminal of 80 columns."""
    model = data["perturbation"]
    strength = ", ".join(f"{k} = {v}" for k, v in model.items() if k not in ("kind", "theta", "per_channel"))
    facts = [
        ("sensing", f"{data['sensing']}; feedback {data['feedback']}; reward {data['reward']}"),
        ("contexts", _contexts(data["context"])),
        (
            "perturbation",
            f"{model['kind'].rpartition(':')[2]}: {data['model']}{'; ' + strength if strength else ''}",
        ),
    ]
    theta = data["theta"]
    if model["kind"] != "none" and not isinstance(theta[0], list) and len(theta) <= 17:
        drawn = " (drawn for replication 0 of this seed)" if data["theta_drawn"] else ""
        facts.append(("theta", "[" + ", ".join(f"{x:.3f}" for x in theta) + f"]{drawn}"))
    facts += _settings(data)
    if "availability" in data:
        facts.append(("availability", "changes over time; the best channels below are chosen among all"))
    names, users = data.get("channel_names", ()), data["users"]
    lines = [f"{data['name']}: {data['channels']} channels, {users} assigned per slot", definitions(facts)]
    lines += ["", table(_channel_rows(data), left=2 if names else 1), ""]
    for what in ("without", "with"):
        labels = ", ".join(channel_label(k, names) for k in data[f"best_{what}_perturbation"])
        lines.append(paragraph(f"* best {users} {what} perturbation: {labels}", 2))
    bounds = data["bound_without_perturbation"], data["bound_with_perturbation"]
    if None not in bounds:
        lines.append(
            "upper bound on the long-run reward per slot of policies that observe played\n"
            f"channels only: {bounds[0]:.3f} without perturbation, {bounds[1]:.3f} with it"
        )
    if "long_run_p01" in data:
        lines.append("p01 and p10 are long-run shares of transitions (not independent Markov chains)")
    errors = {"perturbed": data["mean_standard_error"], "P(n<1)": data["clear_standard_error"]}
    lines += [f"{what}: estimated from a sample, standard error {error:.1g}" for what, error in errors.items() if error]
    return "\n".join(lines)


def _contexts(table: dict[str, Any]) -> str:
    more = "".join(f", {key} {table[key]}" for key in ("correlation", "margin", "file") if key in table)
    return f"{table['kind']}, {table['dimension']} dimensions{more}"


def _settings(data: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what differs from independent Markov channels that are observed without errors and cost."""
    facts = []
    if "dwell" in data:
        kinds = {state: sorted({one["kind"] for one in data["dwell"][state]}) for state in ("good", "bad")}
        facts.append(("dwell times", "; ".join(f"{state} {', '.join(names)}" for state, names in kinds.items())))
    if "regimes" in data:
        at = data["regimes"].get("at")
        changes = "random changes" if at is None else f"changes in {len(at)} given slots, the first {at[0]}"
        facts.append(("regimes", f"{len(data['regimes']['p01'])}, {changes}"))
    if "trace" in data:
        name, block = str(data["trace"]["file"]), data["trace"]["block"]
        facts.append(("trace", f"{name}, blocks of {block} slots"))
    for key in ("shocks", "correlation", "sensing_errors"):
        if key in data:
            values = {k: "per channel" if isinstance(v, list) and k != "channels" else v for k, v in data[key].items()}
            facts.append((key.replace("_", " "), ", ".join(f"{k} = {v}" for k, v in values.items())))
    if "sensing_time" in data:
        facts.append(("sensing time", f"{data['sensing_time']:g} of a slot for each channel that a user senses"))
    if "switching_cost" in data:
        facts.append(("switching cost", f"{data['switching_cost']:g} for each channel not selected in the slot before"))
    return facts


def _channel_rows(data: dict[str, Any]) -> list[list[str]]:
    """Return the table of channels: one row per channel below the headings."""
    names, prefix = data.get("channel_names", ()), "long_run_" if "long_run_p01" in data else ""
    two_state = f"{prefix}p01" in data
    best = {what: set(data[f"best_{what}_perturbation"]) for what in ("without", "with")}
    head = ["channel", *(["name"] if names else []), *(["p01", "p10"] if two_state else ["states"])]
    rows = [[*head, "idle share" if two_state else "good share", "autocorr.", "mean", "perturbed", "P(n<1)"]]
    for k in range(data["channels"]):
        chain = [str(len(data["stationary"][k]))]
        if two_state:
            chain = [f"{data[f'{prefix}{key}'][k]:{'.4g' if prefix else 'g'}}" for key in ("p01", "p10")]
        rows.append(
            [
                str(k),
                *([names[k]] if names else []),
                *chain,
                f"{data['good_share'][k]:.4f}",
                f"{data['autocorrelation'][k]:+.3f}",
                f"{data['mean_without_perturbation'][k]:.4f}" + ("*" if k in best["without"] else " "),
                f"{data['mean_with_perturbation'][k]:.4f}" + ("*" if k in best["with"] else " "),
                f"{data['clear'][k]:.4f}",
            ]
        )
    return rows
