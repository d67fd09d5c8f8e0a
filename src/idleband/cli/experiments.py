"""Commands that simulate: run, compare, learned; and plot, which draws stored results."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from idleband.cli.arguments import dask_client, output_folder, preset_range, read_scenario, thread_count
from idleband.cli.parser import SCALES, SHORTLIST, USERS_SHORTLIST
from idleband.cli.progress import ProgressBar
from idleband.cluster.connect import executor_for
from idleband.durable import write_durably
from idleband.errors import InputError
from idleband.experiments.compare import load
from idleband.experiments.ranking import ranking
from idleband.experiments.run import StudyRequest, run_experiment, run_experiments
from idleband.experiments.spec import every_policy, experiment, read_experiment
from idleband.experiments.store import check_place
from idleband.experiments.study import Study
from idleband.paper.folder import SETTINGS
from idleband.policies.registry import all_policies, policy
from idleband.reporting.plots import learned_figure, regret_figure, reward_figure, save_figure
from idleband.reporting.prediction_error import learned_rows, learned_text
from idleband.reporting.ranking import legend, ranking_csv, ranking_figure, ranking_json, ranking_text
from idleband.reporting.study import study_json, study_text
from idleband.scenario.scenario import Scenario
from idleband.simulation.prediction_error import DEFAULT_SLOTS, check_predicts, learned_csv
from idleband.simulation.prediction_error import learned as learn
from idleband.simulation.result import Result
from idleband.simulation.simulate import check_size
from idleband.validation import choice

RANKING_FILES = "ranking."


def run(options: argparse.Namespace) -> None:
    """Run one experiment, print its results and draw its figure."""
    scale = choice(options.scale, "--scale", SCALES)
    size = {key: getattr(options, key) for key in ("horizon", "replications", "seed", "device", "precision")}
    size = {key: value for key, value in size.items() if value is not None}
    policies = [policy(text) for text in options.policy or ()]
    if options.what.endswith(".toml"):
        spec = read_experiment(Path(options.what), policies, **size)
        if not (options.perturbation is None and options.users is None and options.coordination is None):
            spec = replace(spec, scenario=_scenario(options, options.what))
    else:
        scenario = _scenario(options, options.what)
        spec = experiment(scenario, policies or every_policy(scenario), **size)
    out = output_folder(options, spec.scenario.name)
    threads = thread_count(options)

    with dask_client(options, spec.device) as client, ProgressBar(announce=not options.json) as bar:
        study = run_experiment(spec, out, executor=executor_for(threads, client, spec.device), progress=bar)
    figures = _draw(study, out, scale)
    if options.json:
        answer = {"results": str(out / "results.parquet"), "figures": figures, "per_slot": study_json(study)}
        print(json.dumps(answer, indent=1, allow_nan=False))
        return
    _print_notes(study.results)
    print(f"\n{study_text(study)}\n")
    print(f"figure:  {figures[0]}  (and .svg)")
    print(f"results: {out / 'results.parquet'}")


def _scenario(options: argparse.Namespace, what: str) -> Scenario:
    return read_scenario(what, options.perturbation, options.users, options.coordination)


def compare(options: argparse.Namespace) -> None:
    """Run several policies on one or more scenarios and rank them."""
    names = [name for what in options.what for name in preset_range(what)]
    scenarios = [_scenario(options, name) for name in dict.fromkeys(names)]
    for scenario in scenarios:
        if [other.name for other in scenarios].count(scenario.name) > 1:
            raise InputError(f"scenario {scenario.name}: two scenarios have this name; change one of them")
        if scenario.name.startswith(RANKING_FILES):
            raise InputError(
                f"scenario.name = {scenario.name!r}: is the name of a file that compare writes; choose another"
            )
    policies = [policy(text) for text in options.policy or ()]
    if options.all or not policies:
        named = {configured.label for configured in policies}
        by_users = any(scenario.uncoordinated is not None for scenario in scenarios)
        shortlist = USERS_SHORTLIST if by_users else SHORTLIST
        listed = every_policy(scenarios[0]) if options.all else [policy(name) for name in shortlist]
        policies += [configured for configured in listed if configured.label not in named]
    out, threads = output_folder(options, "compare"), thread_count(options)
    specs = [
        experiment(
            scenario, policies, options.horizon, options.replications, options.seed, options.device, options.precision
        )
        for scenario in scenarios
    ]
    with dask_client(options, specs[0].device) as client, ProgressBar() as bar:
        requests = [StudyRequest(spec, out / spec.scenario.name, bar) for spec in specs]
        studies = run_experiments(requests, executor=executor_for(threads, client, specs[0].device), progress=bar)
    labels = {configured.label for configured in policies}
    tables = [ranking(study, labels) for study in studies]
    rows = [row for table in tables for row in table]
    write_durably(out / "ranking.csv", ranking_csv(rows).encode())
    figures = [str(path) for path in save_figure(ranking_figure(tables), out / "ranking")]
    for study in studies:
        listed_only = replace(study, results=tuple(result for result in study.results if result.label in labels))
        figures += _draw(listed_only, out / study.scenario.name)
    if options.json:
        answer = {"ranking": ranking_json(rows), "table": str(out / "ranking.csv"), "figures": figures}
        print(json.dumps(answer, indent=1, allow_nan=False))
        return
    _print_notes([result for result in studies[0].results if result.label in labels])
    for table in tables:
        print(ranking_text(table), end="\n\n")
    print(legend(rows), end="\n\n")
    for figure in figures[::2]:
        print(f"figure:  {figure}  (and .svg)")
    print(f"table:   {out / 'ranking.csv'}")


def learned(options: argparse.Namespace) -> None:
    """Compare predicted with true perturbations and print the errors."""
    scenario = read_scenario(options.what, options.perturbation, options.users)
    policies = [policy(text) for text in options.policy or ("mp-lucb", "mp-nucb")]
    T, R, seed = check_size(scenario, options.horizon, options.replications, options.seed, DEFAULT_SLOTS)
    experiment(scenario, policies, T, R, seed)  # refuses policies that are given twice or do not fit the scenario
    for configured in policies:
        check_predicts(scenario, configured, T)
    out = output_folder(options, f"{scenario.name}-learned")
    check_place(out)
    found = []
    with ProgressBar() as bar:
        for configured in policies:
            found.append(learn(scenario, configured, horizon=T, replications=R, seed=seed, progress=bar))
    out.mkdir(parents=True, exist_ok=True)
    figures = save_figure(learned_figure(found), out / "learned")
    table = out / "learned.csv"
    write_durably(table, learned_csv(found).encode())
    if options.json:
        answer = {"errors": learned_rows(found), "table": str(table), "figures": list(map(str, figures))}
        print(json.dumps(answer, indent=1))
        return
    print(learned_text(found))
    print(f"\nfigure:  {figures[0]}  (and .svg)\ntable:   {table}")


def plot(options: argparse.Namespace) -> None:
    """Draw the figures of a folder of run, compare or reproduce again."""
    scale, folder = choice(options.scale, "--scale", SCALES), Path(options.folder)
    if (folder / SETTINGS).exists():
        from idleband.paper.report import write_report

        for path in sorted(write_report(folder).path.with_name("figures").glob("*.png")):
            print(path)
        return
    folders = [folder]
    if not (folder / "experiment.toml").exists() and (folder / f"{RANKING_FILES}csv").exists():
        folders = sorted(path.parent for path in folder.glob("*/experiment.toml")) or folders
    for place in folders:
        study = load(place)
        if not study.complete:
            print("note: the experiment is not complete; the same run command continues it")
        for figure in _draw(study, place, scale):
            print(figure)


def _draw(study: Study, folder: Path, scale: str = SCALES[0]) -> list[str]:
    """Write the figure of a study as PNG and SVG; return the paths."""
    if scale == "paper":
        paths = save_figure(regret_figure(study.scenario, study.results), folder / "regret")
    else:
        paths = save_figure(reward_figure(study.scenario, study.results), folder / "reward")
    return list(map(str, paths))


def _print_notes(results: Sequence[Result]) -> None:
    """Print whether policies of the user ran compiled or interpreted."""
    for result in results:
        if result.note:
            print(f"note: {result.label} ran interpreted, because it does not compile: {result.note}")
        elif all_policies()[result.policy].source is not None:
            print(f"note: {result.label} ran compiled")
