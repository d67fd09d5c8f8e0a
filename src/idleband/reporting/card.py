"""Description of a scenario on one screen."""

from typing import Any

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
    return {
        **scenario.to_dict(),
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
        ("contexts", f"{data['context']['kind']}, {data['context']['dimension']} dimensions"),
        (
            "perturbation",
            f"{model['kind'].rpartition(':')[2]}: {data['model']}{'; ' + strength if strength else ''}",
        ),
    ]
    theta = data["theta"]
    if model["kind"] != "none" and not isinstance(theta[0], list) and len(theta) <= 17:
        drawn = " (drawn for replication 0 of this seed)" if data["theta_drawn"] else ""
        facts.append(("theta", "[" + ", ".join(f"{x:.3f}" for x in theta) + f"]{drawn}"))
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
    errors = {"perturbed": data["mean_standard_error"], "P(n<1)": data["clear_standard_error"]}
    lines += [f"{what}: estimated from a sample, standard error {error:.1g}" for what, error in errors.items() if error]
    return "\n".join(lines)


def _channel_rows(data: dict[str, Any]) -> list[list[str]]:
    """Return the table of channels: one row per channel below the headings."""
    names, two_state = data.get("channel_names", ()), "p01" in data
    best = {what: set(data[f"best_{what}_perturbation"]) for what in ("without", "with")}
    head = ["channel", *(["name"] if names else []), *(["p01", "p10"] if two_state else ["states"])]
    rows = [[*head, "idle share" if two_state else "good share", "autocorr.", "mean", "perturbed", "P(n<1)"]]
    for k in range(data["channels"]):
        chain = [f"{data['p01'][k]:g}", f"{data['p10'][k]:g}"] if two_state else [str(len(data["stationary"][k]))]
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
