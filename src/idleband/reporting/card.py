"""A scenario's card: what is worth knowing of it on one screen."""

from typing import Any

from idleband.reporting.text import aligned
from idleband.scenario.scenario import Scenario
from idleband.scenario.upper_bound import bound


def card(scenario: Scenario, seed: int = 0) -> dict[str, Any]:
    """The facts of a scenario; where theta is drawn, those of replication 1 under the seed."""
    theta = scenario.theta(seed, 0)
    means, error = scenario.mean_rewards(theta)
    clear, clear_error = scenario.probabilities_below(theta, 1.0)
    table = scenario.table_means
    return {
        **scenario.to_dict(),
        "channels": scenario.K,
        "theta": theta.tolist() if len({tuple(row) for row in theta.tolist()}) > 1 else theta[0].tolist(),
        "theta_drawn": scenario.perturbation.drawn,
        "model": scenario.perturbation.model.formula,
        "stationary": [distribution.tolist() for distribution in scenario.stationary_distributions],
        "good_share": scenario.good_shares.tolist(),
        "autocorrelation": scenario.autocorrelations.tolist(),
        "mean_without_perturbation": table.tolist(),
        "mean_with_perturbation": means.tolist(),
        "mean_standard_error": error,
        "clear": clear.tolist(),
        "clear_standard_error": clear_error,
        "best_without_perturbation": [k + 1 for k in scenario.best(table)],
        "best_with_perturbation": [k + 1 for k in scenario.best(means)],
        "bound_without_perturbation": bound(scenario),
        "bound_with_perturbation": bound(scenario, theta),
    }


def card_text(data: dict[str, Any]) -> str:
    """The card for a reader; channels are numbered from 1."""
    model = data["perturbation"]
    strength = ", ".join(f"{k} = {v}" for k, v in model.items() if k not in ("kind", "theta", "per_channel"))
    lines = [
        f"{data['name']}: {data['channels']} channels, {data['users']} handed out in a slot",
        f"sensing {data['sensing']}, feedback {data['feedback']}, reward {data['reward']},"
        f" contexts {data['context']['kind']} in {data['context']['dimension']} dimensions",
        f"perturbation {model['kind'].rpartition(':')[2]}: {data['model']}{'; ' + strength if strength else ''}"
        + (" (figures below: the theta of replication 1 under this seed)" if data["theta_drawn"] else ""),
    ]
    if "availability" in data:
        lines.append("channels come and go; the best sets below take all of them as available")
    theta = data["theta"]
    if model["kind"] != "none" and not isinstance(theta[0], list) and len(theta) <= 17:
        lines.append("theta = [" + ", ".join(f"{x:.3f}" for x in theta) + "]")
    two_state = "p01" in data
    chain_head = ["p01", "p10"] if two_state else ["states"]
    head = ["channel", *chain_head, "good share", "autocorr.", "mean", "mean, perturbed", "P(n<1)"]
    best, best_perturbed = set(data["best_without_perturbation"]), set(data["best_with_perturbation"])
    rows = [head]
    for k in range(data["channels"]):
        chain = [f"{data['p01'][k]:g}", f"{data['p10'][k]:g}"] if two_state else [str(len(data["stationary"][k]))]
        rows.append(
            [
                str(k + 1),
                *chain,
                f"{data['good_share'][k]:.4f}",
                f"{data['autocorrelation'][k]:+.3f}",
                f"{data['mean_without_perturbation'][k]:.4f}" + ("*" if k + 1 in best else " "),
                f"{data['mean_with_perturbation'][k]:.4f}" + ("*" if k + 1 in best_perturbed else " "),
                f"{data['clear'][k]:.4f}",
            ]
        )
    lines += ["", aligned(rows)]
    lines += [
        "",
        f"* the best {data['users']}: {', '.join(map(str, sorted(best)))} without perturbation,"
        f" {', '.join(map(str, sorted(best_perturbed)))} with it",
    ]
    most, most_perturbed = data["bound_without_perturbation"], data["bound_with_perturbation"]
    if most is not None and most_perturbed is not None:
        lines.append(
            f"nobody who sees only what is played earns more in a slot, in the long run, than {most:.3f} without"
            f" perturbation, {most_perturbed:.3f} with it"
        )
    errors = {"mean, perturbed": data["mean_standard_error"], "P(n<1)": data["clear_standard_error"]}
    lines += [f"{what}: from a sample, standard error {error:.1g}" for what, error in errors.items() if error]
    return "\n".join(lines)
