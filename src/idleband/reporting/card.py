"""Description of a scenario on one screen."""

from typing import Any

import numpy as np

from idleband.channels import channel_label
from idleband.errors import counted
from idleband.reporting.process import context_text, process_facts
from idleband.reporting.text import definitions, paragraph, table
from idleband.scenario.scenario import Perturbation, Scenario
from idleband.scenario.upper_bound import bound

LEGEND = (
    "autocorr.: correlation of the state reward from one slot to the next. mean, perturbed: mean reward without and"
    " with perturbation. P(n<1): probability that the perturbation is below 1."
)
LONG_RUN = (
    "p01, p10: long-run shares of transitions from busy to idle and from idle to busy; channels are not independent"
    " Markov chains."
)


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
        **_process_data(scenario),
        "channels": scenario.K,
        "theta": theta.tolist() if len({tuple(row) for row in theta.tolist()}) > 1 else theta[0].tolist(),
        "theta_drawn": scenario.perturbation.drawn,
        "model": _formula(scenario.perturbation),
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


def _formula(perturbation: Perturbation) -> str:
    """Return the formula of the perturbation model, with its noise."""
    model = perturbation.model
    if not perturbation.noise:
        return model.formula
    if model.source is not None:  # the description of a user's model
        return f"{model.formula}; plus noise e, e ~ N(0, 1)"
    first, comma, rest = model.formula.partition(", ")
    return f"{first} + noise e{comma}{rest}, e ~ N(0, 1)"


def _process_data(scenario: Scenario) -> dict[str, Any]:
    """Return what the table of a scenario leaves open where channels are not plain Markov chains."""
    data: dict[str, Any] = {}
    recording, dwell = scenario.recording, scenario.dwell
    if scenario.channel_names:
        data["channel_names"] = list(scenario.channel_names)
    if recording is not None:
        about = recording.trace.metadata
        data["trace"] = {
            "file": recording.file, "slots": recording.T, "slot_s": about.slot_s, "block": recording.block,
            "blocks": recording.blocks, "threshold_rule": about.threshold_rule, "digest": recording.digest,
        }  # fmt: skip
    if dwell is not None:
        data["mean_dwell"] = {state: [one.mean for one in getattr(dwell, state)] for state in ("good", "bad")}
    if scenario.two_state and not scenario.markov:
        P = np.array(scenario.marginal_transition)
        data |= {"long_run_p01": P[:, 0, 1].tolist(), "long_run_p10": P[:, 1, 0].tolist()}
    return data


def card_text(data: dict[str, Any]) -> str:
    """Return the description for a terminal of 80 columns."""
    model = data["perturbation"]
    strength = ", ".join(f"{k} = {v}" for k, v in model.items() if k not in ("kind", "theta", "per_channel"))
    facts = [
        ("sensing", f"{data['sensing']}; feedback {data['feedback']}; reward {data['reward']}"),
        *process_facts(data),
        ("contexts", context_text(data["context"])),
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
    assigned = f"{users} assigned per slot"
    if isinstance(users, dict):
        facts.append(("users", "; ".join(f"{key} {_short(value)}" for key, value in users.items() if key != "count")))
        users = users["count"]
        assigned = f"{counted(users, 'user')} without a base station"
    lines = [f"{data['name']}: {data['channels']} channels, {assigned}", definitions(facts)]
    lines += ["", table(_channel_rows(data), left=2 if names else 1), ""]
    if "long_run_p01" in data:
        lines.append(paragraph(LONG_RUN))
    if not _undisturbed(data):
        lines.append(paragraph(LEGEND))
    for what in ("without",) if _undisturbed(data) else ("without", "with"):
        labels = ", ".join(channel_label(k, names) for k in data[f"best_{what}_perturbation"])
        when = "over the whole trace" if _undisturbed(data) else f"{what} perturbation"
        lines.append(paragraph(f"* best {users} {when}: {labels}", 2))
    bounds = data["bound_without_perturbation"], data["bound_with_perturbation"]
    if None not in bounds:
        lines.append(
            "upper bound on the long-run reward per slot of policies that observe played\n"
            f"channels only: {bounds[0]:.3f} without perturbation, {bounds[1]:.3f} with it"
        )
    errors = {"perturbed": data["mean_standard_error"], "P(n<1)": data["clear_standard_error"]}
    lines += [f"{what}: estimated from a sample, standard error {error:.1g}" for what, error in errors.items() if error]
    return "\n".join(lines)


def _short(value: Any) -> str:
    """Return a setting of the users; a table of qualities only as its size."""
    if isinstance(value, list) and value and isinstance(value[0], list):
        return f"of {counted(len(value), 'user')} on {counted(len(value[0]), 'channel')}"
    return str(value)


def _undisturbed(data: dict[str, Any]) -> bool:
    """Return whether a trace is replayed without perturbation: columns about it would only take space."""
    return "trace" in data and data["perturbation"]["kind"] == "none"


def _channel_rows(data: dict[str, Any]) -> list[list[str]]:
    """Return the table of channels: one row per channel below the headings."""
    names, long_run = data.get("channel_names", ()), "long_run_p01" in data
    two_state = long_run or "p01" in data
    best = {what: set(data[f"best_{what}_perturbation"]) for what in ("without", "with")}
    head = ["channel", *(["name"] if names else []), *(["p01", "p10"] if two_state else ["states"])]
    head += ["idle share" if two_state else "good share", "autocorr.", "mean", "perturbed", "P(n<1)"]
    rows = [head]
    for k in range(data["channels"]):
        if long_run:
            chain = [f"{data[f'long_run_{key}'][k]:.4g}" for key in ("p01", "p10")]
        elif two_state:
            chain = [f"{data['p01'][k]:g}", f"{data['p10'][k]:g}"]
        else:
            chain = [str(len(data["stationary"][k]))]
        rows.append(
            [
                str(k),
                *([names[k]] if names else []),
                *chain,
                f"{data['good_share'][k]:.4f}",
                f"{round(data['autocorrelation'][k], 3) + 0.0:+.3f}",  # + 0.0: no -0.000
                f"{data['mean_without_perturbation'][k]:.4f}" + ("*" if k in best["without"] else " "),
                f"{data['mean_with_perturbation'][k]:.4f}" + ("*" if k in best["with"] else " "),
                f"{data['clear'][k]:.4f}",
            ]
        )
    return [row[:-2] for row in rows] if _undisturbed(data) else rows
