"""Rank every policy in S1 to S4 under four perturbation models; write the page, its figures and a table of goals.

    python studies/ranking.py [FOLDER]
    python studies/ranking.py --add      # run only the policies that ranking.csv lacks, and add them to table and page
    python studies/ranking.py --goals    # run only the closest rivals in ranking.csv again, and write goals.md

T = 10^5 slots, 20 replications, with a seed that was not used while the policies were developed. Policies of others
with a parameter run twice: with the default, and tuned for the scenario on another seed (`studies/tuned.py`, which must
run first). Results are stored in FOLDER (default results/ranking), from which an interrupted study continues. It takes
an hour on two cores. To limit the time, policies with networks are omitted where there is no perturbation to learn;
mp-nucb-rca and mp-nucb-printed, which are far behind, have a diagonal covariance under the linear model and are omitted
under the nonlinear ones; and mp-nucb has a diagonal covariance under the nonlinear models.

Writes ranking.csv and goals.md beside this file, and the page and figures in docs.
"""

import csv
import math
import sys
from collections.abc import Collection
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import tuned

import idleband as ib
from idleband.experiments.ranking import NEEDED, ORACLES, Row, ranking
from idleband.experiments.run import StudyRequest, run_experiments
from idleband.experiments.spec import every_policy, experiment
from idleband.experiments.study import Study
from idleband.policies.registry import POLICIES, ConfiguredPolicy
from idleband.reporting.ranking import ranking_csv, ranking_figure

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
SCENARIOS, PERTURBATION_MODELS = ("S1", "S2", "S3", "S4"), ("none", "linear", "quadratic", "cosine")
HORIZON, REPLICATIONS, SEED = 100_000, 20, 7
NONLINEAR, RCA_AND_PRINTED = ("quadratic", "cosine"), ("mp-nucb-rca", "mp-nucb-printed")
AWARE = {
    "mp-belief",
    "mp-belief-lucb",
    "mp-belief-nucb",
    "mp-whittle",
    "mp-ts-episodes",
    "restless-ucb",
    "whittle-q",
    "mp-adaptive",
    "mp-adaptive-lucb",
}  # restless-aware policies


def policies_of(model: str) -> list[ConfiguredPolicy]:
    """Return the policies that are ranked under a perturbation model."""
    found = []
    for configured in every_policy():
        name, networks = configured.policy.name, "covariance" in configured.values
        if (networks and model == "none") or (model in NONLINEAR and name in RCA_AND_PRINTED):
            continue
        if name in RCA_AND_PRINTED or (model in NONLINEAR and name == "mp-nucb"):
            configured = ib.policy(configured, covariance="diagonal")
        found.append(configured)
    return found


def tuned_policies(model: str, name: str) -> dict[str, ConfiguredPolicy]:
    """Return the tuned policies of a scenario by the labels that they have in tables."""
    return {
        f"{policy}, tuned": configured
        for (one, scenario, policy), configured in tuned.chosen().items()
        if (one, scenario) == (model, name)
    }


def rows_of(study: Study, model: str, name: str) -> list[Row]:
    """Return the ranking with labels of tuned policies; one whose default is best has two rows with the same values."""
    labels = {configured.label: label for label, configured in tuned_policies(model, name).items()}
    rows = []
    for row in ranking(study):
        if row.label in labels:
            rows.append(replace(row, label=labels[row.label]))
        if row.label not in labels or row.label == row.policy:
            rows.append(row)
    return rows


def studies(folder: Path) -> dict[tuple[str, str], Study]:
    """Run all studies; return them by model and scenario."""
    work = {
        (model, name): StudyRequest(
            experiment(
                ib.scenario(name, perturbation=model, name=f"{name}-{model}"),
                list(dict.fromkeys([*policies_of(model), *tuned_policies(model, name).values()])),
                HORIZON,
                REPLICATIONS,
                SEED,
            ),
            folder / f"{name}-{model}",
        )
        for model in PERTURBATION_MODELS
        for name in SCENARIOS
    }
    done = {}
    for model in PERTURBATION_MODELS:  # model by model, so that the first results are available early
        part = {place: one for place, one in work.items() if place[0] == model}
        done |= dict(zip(part, run_experiments(list(part.values())), strict=True))
        print(f"{model}: done", flush=True)
    return done


# --- the page ---------------------------------------------------------------------------------------------------------


HEAD = """\
# The ranking

Policies in S1 to S4 under four perturbation models: {slots:,} slots, {replications} replications, M = 5, only the
states of played channels are observed, and P(n < 1) = 0.7 where there is a perturbation. Written by
`studies/ranking.py`; `idleband compare` does the same for any scenario. [Beyond the paper](beyond.md) interprets the
numbers. All columns, with every interval, are in `studies/ranking.csv`. Policies of others with a parameter have two
rows: with the default, which is that of the publication where it gives one, and *tuned*, with the best value of a grid
for this scenario and model, chosen on three replications with another seed (`studies/tuned.csv`; networks on two of
30,000 slots). Policies of this package have one setting for all scenarios. To keep the study to an hour, policies with
networks are omitted where there is no perturbation to learn, and two that are far behind under the nonlinear models;
some have a diagonal covariance, as their labels show.

Each cell: reward per slot; in brackets the gap closed, (reward - rca-m) / (oracle - rca-m), where the oracle is the
better of oracle-belief and oracle-whittle, and half its 95% interval. *Of bound*: reward as a share of the upper bound
on the long-run average reward of policies that observe played channels only, mean of the four scenarios. *µs*:
microseconds of processor time per slot in S1, including the simulation of the channels, with two policies running side
by side. *Knows*, besides states and rewards of played channels: **x** contexts, **p** parameters, **s** all states."""


def page(tables: dict[tuple[str, str], list[Row]]) -> str:
    """Return docs/explanation/ranking.md: one table per model, with policies ordered by mean reward."""
    lines = [HEAD.format(slots=HORIZON, replications=REPLICATIONS)]
    for model in PERTURBATION_MODELS:
        by_label: dict[str, dict[str, Row]] = {}
        for name in SCENARIOS:
            for row in tables[model, name]:
                by_label.setdefault(row.label, {})[name] = row
        order = sorted(by_label, key=lambda label: -sum(row.reward for row in by_label[label].values()))
        bounds = {name: tables[model, name][0].reward + tables[model, name][0].regret_bound for name in SCENARIOS}
        lines += ["", f"## {model.capitalize() if model != 'none' else 'No perturbation'}", ""]
        lines += [f"![Rewards of policies, perturbation {model}](../figures/ranking-{model}.png)", ""]
        lines += ["| policy | knows | S1 | S2 | S3 | S4 | of bound | µs |", "|---" * 8 + "|"]
        for label in order:
            rows = by_label[label]
            share = sum(row.share_of_bound for row in rows.values()) / len(rows)
            first = rows["S1"]
            known = "".join(
                letter
                for letter, word in (("x", "contexts"), ("p", "parameters"), ("s", "all states"))
                if word in first.knows
            )
            cells = [cell(rows[name]) for name in SCENARIOS]
            lines.append(
                f"| `{label}` | {known or '-'} | {' | '.join(cells)} | {100 * share:.1f}% | {first.microseconds:.1f} |"
            )
        lines.append(f"| *bound* | | {' | '.join(f'{bounds[name]:.4f}' for name in SCENARIOS)} | 100% | |")
    return "\n".join(lines) + "\n"


def cell(row: Row) -> str:
    return f"{row.reward:.4f}" + ("" if math.isnan(row.gap_closed) else f" ({closed(row)})")


def closed(row: Row) -> str:
    return "-" if math.isnan(row.gap_closed) else f"{100 * row.gap_closed:.1f}% ±{100 * row.gap_closed_pm:.1f}"


# --- goals ------------------------------------------------------------------------------------------------------------

MAX_DEFICIT = 0.005  # largest share of its reward by which a restless-aware rival may be ahead


# Policy, perturbation model, share of the oracle's reward, and gap closed.
GOALS = (
    ("mp-belief", "none", 0.985, 0.80),
    ("mp-belief-lucb", "linear", 0.99, 0.93),
    ("mp-belief-nucb", "linear", 0.99, 0.93),
    ("mp-belief-nucb", "quadratic", 0.985, 0.93),
    ("mp-belief-nucb", "cosine", 0.985, 0.93),
)


def goals(found: dict[tuple[str, str], Study], tables: dict[tuple[str, str], list[Row]]) -> str:
    """Return a table with the results and goals of each policy in each scenario, and whether they are reached."""
    lines = [
        "| policy, model | scenario | of the oracle (goal) | gap closed (goal) | closest rival | lead over it |"
        " closest tuned rival | lead over it | closest restless-aware | lead over it | reached |",
        "|---" * 11 + "|",
    ]
    for policy, model, share_goal, gap_goal in GOALS:
        for name in SCENARIOS:
            study = found[model, name]
            row = next(row for row in tables[model, name] if row.label == policy)
            best = max(
                row.reward for row in tables[model, name] if row.label in (ORACLES if model == "none" else ORACLES[:1])
            )
            level = model == "none" and name == "S2"  # there is no gap to close
            adjusted = {configured.label for configured in tuned_policies(model, name).values()}
            textbook = {result.label for result in study.results} - (adjusted - set(POLICIES))
            rival, lead, ahead = closest(study, policy, textbook, aware=False)
            after, tuned_lead, _ = closest(study, policy, adjusted, aware=False)
            other, other_lead, beside = closest(study, policy, textbook, aware=True)
            reached = row.reward >= share_goal * best and beside
            reached &= level or (ahead and row.gap_closed >= gap_goal)
            lines.append(
                f"| {policy}, {model} | {name} | {100 * row.reward / best:.2f}% ({100 * share_goal:g}%) |"
                f" {closed(row)}{'' if level else f' ({100 * gap_goal:g}%)'} | {rival} | {lead} | {after} |"
                f" {tuned_lead} | {other} |"
                f" {other_lead} | {'yes' if reached else 'no'} |"
            )
    return "\n".join(lines) + "\n"


def closest(study: Study, policy: str, labels: Collection[str], *, aware: bool) -> tuple[str, str, bool]:
    """Find the closest rival among the labels of policies that know no more and are restless-aware or not.

    Return its label, the lead over it in per cent of its reward with the paired interval, and whether the lead over
    all these policies is large enough.
    """
    leads, reached = [], True
    for result in study.results:
        label, knows = result.label, POLICIES[result.policy].knows
        if label == policy or label not in labels or (result.policy in AWARE) != aware:
            continue
        if not knows <= POLICIES[policy].knows:
            continue
        lead = study.difference(policy, label, per_slot=True)
        base = study.interval(label, per_slot=True).mean
        mean, low, high = (value / base for value in lead[:3])
        leads.append((mean if aware else low, label, f"{100 * mean:+.2f}% [{100 * low:+.2f}, {100 * high:+.2f}]"))
        reached &= mean >= -MAX_DEFICIT if aware else low > 0
    if not leads:
        return "-", "-", True
    return (*min(leads)[1:], reached)


RIVALS = 3  # that may be the closest of their kind, by the mean rewards of the table


def with_closest(tables: dict[tuple[str, str], list[Row]]) -> dict[tuple[str, str], Study]:
    """Run the policies of the goals with the rivals of each kind that are closest in the tables."""
    found = {}
    for model in dict.fromkeys(model for _, model, _, _ in GOALS):
        for name in SCENARIOS:
            by_label = {one.label: one for one in policies_of(model)} | tuned_policies(model, name)
            chosen = {}
            for policy in (policy for policy, one, _, _ in GOALS if one == model):
                chosen[policy] = by_label[policy]
                kinds: dict[tuple[bool, bool], int] = {}
                for row in tables[model, name]:  # the best first
                    kind = row.policy in AWARE, row.label.endswith(", tuned")
                    if row.label != policy and POLICIES[row.policy].knows <= POLICIES[policy].knows:
                        kinds[kind] = kinds.get(kind, 0) + 1
                        if kinds[kind] <= RIVALS:
                            chosen[row.label] = by_label[row.label]
            scenario = ib.scenario(name, perturbation=model, name=f"{name}-{model}")
            together = list(dict.fromkeys(chosen.values()))
            found[model, name] = ib.compare(scenario, together, horizon=HORIZON, replications=REPLICATIONS, seed=SEED)
            print(f"{model}, {name}: {', '.join(chosen)}", flush=True)
    return found


# --- adding policies --------------------------------------------------------------------------------------------------


def stored() -> dict[tuple[str, str], list[Row]]:
    """Return the rows of ranking.csv by model and scenario."""
    kinds: dict[str, Any] = {field.name: field.type for field in fields(Row)}
    absent = {str: "Student t", int: "0", float: "nan"}  # in tables of earlier versions
    tables: dict[tuple[str, str], list[Row]] = {}
    with (HERE / "ranking.csv").open() as file:
        for entry in csv.DictReader(file):
            row = Row(**{name: kind(entry.get(name) or absent[kind]) for name, kind in kinds.items()})
            tables.setdefault((row.perturbation, row.scenario.partition("-")[0]), []).append(row)
    return tables


def with_missing(tables: dict[tuple[str, str], list[Row]]) -> dict[tuple[str, str], list[Row]]:
    """Return the tables with rows of the policies that they lack, on the same sample paths."""
    found = {}
    for (model, name), rows in tables.items():
        present = {row.label for row in rows}
        missing = [one for one in policies_of(model) if one.label not in present]
        missing += [one for label, one in tuned_policies(model, name).items() if label not in present]
        best = max((row for row in rows if "parameters" not in row.knows), key=lambda row: row.reward).policy
        beside = [ib.policy(other) for other in dict.fromkeys((*NEEDED, best))]
        scenario = ib.scenario(name, perturbation=model, name=f"{name}-{model}")
        together = list(dict.fromkeys([*missing, *beside]))
        study = ib.compare(scenario, together, horizon=HORIZON, replications=REPLICATIONS, seed=SEED)
        added = [row for row in rows_of(study, model, name) if row.label not in present]
        found[model, name] = sorted([*rows, *added], key=lambda row: -row.reward)
        print(f"{model}, {name}: {len(added)} policies added", flush=True)
    return found


def main() -> None:
    if sys.argv[1:] == ["--add"]:
        write(with_missing(stored()))
        return
    if sys.argv[1:] == ["--goals"]:
        tables = stored()
        text = goals(with_closest(tables), tables)
        (HERE / "goals.md").write_text(text)
        print(text)
        return
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "results/ranking"
    found = studies(folder)
    tables = {place: rows_of(study, *place) for place, study in found.items()}
    write(tables)
    text = goals(found, tables)
    (HERE / "goals.md").write_text(text)
    print(text)


def write(tables: dict[tuple[str, str], list[Row]]) -> None:
    """Write the table, the page and the figures."""
    (HERE / "ranking.csv").write_text(ranking_csv([row for rows in tables.values() for row in rows]))
    (DOCS / "explanation/ranking.md").write_text(page(tables))
    for model in PERTURBATION_MODELS:
        drawn = ranking_figure([tables[model, name] for name in SCENARIOS])
        drawn.savefig(DOCS / f"figures/ranking-{model}.png")


if __name__ == "__main__":
    main()
