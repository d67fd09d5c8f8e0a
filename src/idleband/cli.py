"""The command `idleband`: parse, call, print."""

import argparse
import difflib
import io
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any, NoReturn, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from idleband import validation
from idleband.allocator.settings import Settings
from idleband.durable import write_durably
from idleband.errors import InputError, unknown
from idleband.experiments.ranking import LEGEND, NEEDED, panels, ranking, ranking_csv, ranking_json, ranking_text
from idleband.experiments.spec import Experiment, every_policy, experiment, read_experiment
from idleband.experiments.store import check_place
from idleband.experiments.study import Study, Work, load, run_experiment, run_experiments
from idleband.paper.page import Page, write_report
from idleband.paper.plan import PARTS, QUICK, Size
from idleband.paper.run import SETTINGS, check_size, reproduce
from idleband.paper.summary import claim_rows, summary_text
from idleband.policies.protocol import KNOWLEDGE
from idleband.policies.registry import POLICIES, ConfiguredPolicy, policy
from idleband.reporting.card import card, card_text
from idleband.reporting.plots import learned_figure, ranking_figure, save_figure, save_figures
from idleband.reporting.text import aligned
from idleband.scenario.build import scenario
from idleband.scenario.perturbation import PERTURBATION_MODELS
from idleband.scenario.presets import PRESETS
from idleband.scenario.scenario import Scenario
from idleband.simulation.bench import bench
from idleband.simulation.prediction_error import check_predicts, learned, learned_csv, root_mean_square
from idleband.simulation.simulate import Result

# What `compare` ranks unless it is told otherwise.
SHORTLIST = ("rca-m", "mp-ucb", "mp-lucb", "mp-belief", "mp-belief-lucb", "oracle-belief", "oracle-whittle")


class _Parser(argparse.ArgumentParser):
    """argparse with errors in one line, and no guesses: --al is a mistake, not --all."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see {self.prog} --help)")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """What a command does not know is its own mistake to tell: the parser above it has other options."""
        found, strange = super().parse_known_args(args, namespace)
        if strange:
            close = difflib.get_close_matches(strange[0], self._option_string_actions, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            self.error(f"unrecognized arguments: {' '.join(strange)}{hint}")
        return found, strange


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="idleband", description="Hand out idle radio channels: policies for restless channels.")
    parser.add_argument("--version", action="version", version=f"idleband {version('idleband')}")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True, parser_class=_Parser)

    def add(name: str, does: str, call: Any, **more: Any) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=does, description=does, **more)
        command.set_defaults(call=call)
        return command

    run = add("run", "run an experiment: a preset or a TOML file; the same command resumes or extends it", _run)
    run.add_argument("what", metavar="SCENARIO|FILE.toml", help="S1 to S4, or an experiment file")
    run.add_argument(
        "--policy", action="append", metavar="NAME[:key=value,...]",
        help="a policy, or file.py:NAME for one of your own; may be repeated (default: those of the file, or all)",
    )  # fmt: skip
    run.add_argument("--horizon", metavar="T", help="slots (default 1e5, at most 1e10)")
    run.add_argument("--replications", metavar="R", help="independent repetitions (default 5)")
    run.add_argument("--seed", metavar="N", help="default 0")
    run.add_argument("--out", metavar="DIR", help="where the results go (default results/NAME)")
    run.add_argument("--threads", metavar="N", help="default: one per core")

    ranked = add("compare", "many policies side by side, ranked, with paired intervals", _compare)
    ranked.add_argument(
        "what",
        metavar="SCENARIO|FILE.toml",
        nargs="+",
        help="S1 to S4, S1..S4 for all of them, or files, of which the [scenario] is taken",
    )
    ranked.add_argument("--all", action="store_true", help="every policy of the package")
    ranked.add_argument(
        "--policy", action="append", metavar="NAME[:key=value,...]",
        help=f"a policy, or file.py:NAME; may be repeated, and stand beside --all (default: {', '.join(SHORTLIST)})",
    )  # fmt: skip
    ranked.add_argument("--horizon", metavar="T", default="1e5", help="slots (default 1e5)")
    ranked.add_argument("--replications", metavar="R", default="5", help="independent repetitions (default 5)")
    ranked.add_argument("--seed", metavar="N", default="0", help="default 0")
    ranked.add_argument("--out", metavar="DIR", help="where the results go (default results/compare)")
    ranked.add_argument("--threads", metavar="N", help="default: one per core")

    paper = add("reproduce", "the paper, end to end: tables, figures, claims with verdicts, one report", _reproduce)
    paper.add_argument("--quick", action="store_true", help="a first look: 10^4 slots, three replications")
    paper.add_argument(
        "--only", action="append", metavar="PART", help=f"one part of it; may be repeated: {', '.join(PARTS)}"
    )
    paper.add_argument(
        "--replications", metavar="R", help="of every policy (default 20, and fewer for MP-NUCB and for the map)"
    )
    paper.add_argument("--seed", metavar="N", default="0", help="default 0")
    paper.add_argument("--out", metavar="DIR", help="default results/paper, or results/paper-quick")
    paper.add_argument("--threads", metavar="N", help="default: one per core")
    report = add("report", "the report of a reproduction again, from stored results only", _report)
    report.add_argument("folder", metavar="DIR")

    learn = add("learned", "what policies learned of the perturbation: predicted against true, and the error", _learned)
    learn.add_argument("what", metavar="SCENARIO|FILE.toml")
    learn.add_argument(
        "--policy", action="append", metavar="NAME[:key=value,...]",
        help="a policy with a model of the perturbation; may be repeated (default: mp-lucb and mp-nucb)",
    )  # fmt: skip
    learn.add_argument("--horizon", metavar="T", default="5e4", help="slots (default 5e4)")
    learn.add_argument("--replications", metavar="R", default="3", help="independent repetitions (default 3)")
    learn.add_argument("--seed", metavar="N", default="0", help="default 0")
    learn.add_argument("--out", metavar="DIR", help="where figure and table go (default results/NAME-learned)")

    live = add("serve", "hand out channels over HTTP, with a page to watch", _serve)
    live.add_argument("--data", metavar="DIR", required=True, help="the folder of its journal")
    live.add_argument("--policy", metavar="NAME[:key=value,...]", help="a policy, or file.py:NAME (not needed again)")
    live.add_argument("--channels", metavar="K")
    live.add_argument("--users", metavar="M", help="channels to hand out in a slot, at most")
    live.add_argument("--dimension", metavar="d", help="entries of a context")
    live.add_argument("--name", help="of the allocator (default main)")
    live.add_argument(
        "--set", action="append", metavar="KEY=VALUE", default=[],
        help="another setting of the allocator: feedback, rewards, patience, fallback, incumbent, deadline,"
        " collision_limit or seed; may be repeated",
    )  # fmt: skip
    live.add_argument("--host", default="127.0.0.1", help="default 127.0.0.1: this machine only; others need a token")
    live.add_argument("--port", default="8765", help="default 8765; 0: any that is free")
    live.add_argument("--token-file", metavar="FILE", help="a file with the token that clients must show")
    live.add_argument("--body", metavar="BYTES", default=str(4 * 2**20), help="of a request, at most (default 4 MiB)")
    live.add_argument("--rate", metavar="N", default="20000", help="requests a second from one address, at most")
    live.add_argument("--connections", metavar="N", default="256", help="at once, at most (default 256)")
    live.add_argument("--station", metavar="SCENARIO", help="play a base station on this scenario, so there is life")
    live.add_argument("--pace", metavar="N", default="10", help="its slots a second (default 10)")
    scenarios = add("scenarios", "what scenarios there are", _scenarios)
    policies = add("policies", "what policies there are, and their parameters", _policies)
    show = add("show", "a scenario's card", _show)
    show.add_argument("what", metavar="SCENARIO|FILE.toml")
    show.add_argument("--seed", metavar="N", default="0", help="of the theta that is shown, if it is drawn (default 0)")
    cost = add("cost", "one slot's regret of a selection, in means without perturbation", _cost)
    cost.add_argument("what", metavar="SCENARIO|FILE.toml")
    cost.add_argument("channels", metavar="1,2,3,...", help="M channels, numbered from 1")
    plot = add("plot", "the figures again, from stored results only", _plot)
    plot.add_argument("folder", metavar="DIR")
    speed = add("bench", "speed here, per policy, beside the bare loop", _bench)
    for command in (run, ranked, learn, show):
        command.add_argument(
            "--perturbation",
            metavar="PERTURBATION",
            help="another model than the scenario's: FILE.py:NAME or " + ", ".join(PERTURBATION_MODELS),
        )
    for command in (run, ranked, paper, report, learn, scenarios, policies, show, cost, speed):
        command.add_argument("--json", action="store_true", help="for programs")
    return parser


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; ends with status 0, 2 on a mistake in the input, or 130 on Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that the terminal cannot show is no reason to stop
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            options = _parser().parse_args(arguments)
            options.call(options)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
        sys.exit(0)
    except InputError as error:
        print(f"idleband: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:  # a full disk while a figure is drawn, say
        print(f"idleband: {error.filename or 'output'}: {error.strerror or error}", file=sys.stderr)
        sys.exit(2)
    except MemoryError as error:
        print(f"idleband: not enough memory: {error or 'fewer channels or threads need less'}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("idleband: stopped; what was finished is kept, and the same command goes on from there", file=sys.stderr)
        sys.exit(130)


def _scenario(what: str, model: str | None = None) -> Scenario:
    """A preset or a file's scenario; under another model it is another scenario, with a name of its own."""
    if not what.endswith(".toml") and what not in PRESETS:
        raise unknown("scenario", what, [*PRESETS, "FILE.toml"])
    world = scenario(what)
    if model is None or model == world.perturbation.kind:
        return world
    return scenario(world, perturbation=model, name=f"{world.name}-{model.rpartition(':')[2]}")


def _out(options: argparse.Namespace, name: str) -> Path:
    if options.out == "":
        raise InputError("--out: must be the name of a folder")
    return Path(options.out or f"results/{name}")


# --- run -------------------------------------------------------------------------------------------------------------


def _run(options: argparse.Namespace) -> None:
    size = {key: getattr(options, key) for key in ("horizon", "replications", "seed")}
    size = {key: value for key, value in size.items() if value is not None}
    cases = [_case(text) for text in options.policy or ()]
    if options.what.endswith(".toml"):
        spec = read_experiment(Path(options.what), cases, **size)
        if options.perturbation is not None:
            spec = replace(spec, scenario=_scenario(options.what, options.perturbation))
    else:
        spec = experiment(_scenario(options.what, options.perturbation), cases or every_policy(), **size)
    out = _out(options, spec.scenario.name)
    threads = _threads(options)

    with _Bar() as bar:

        def started(merged: Experiment, missing: int, total: int) -> None:
            kept = f", {total - missing} already there" if missing < total else ""
            if not options.json:
                counts = {"policies": len(merged.cases), "replications": merged.replications, "slots": merged.horizon}
                sizes = " x ".join(f"{n:,} {what}" for what, n in counts.items())
                print(f"{merged.scenario.name}: {sizes}{kept}")
            bar.start(missing * merged.horizon)

        study = run_experiment(spec, out, threads=threads, started=started, preparing=bar.prepare, progress=bar.advance)
    figures = save_figures(study.scenario, study.results, out)
    if options.json:
        rows = study.table().reset_index().to_dict("records")
        # One replication has no interval, where all is sensed there is no bound, and JSON has neither inf nor nan.
        table = [{k: v if isinstance(v, str) or math.isfinite(v) else None for k, v in row.items()} for row in rows]
        answer = {"results": str(out / "results.parquet"), "figures": list(map(str, figures)), "per_slot": table}
        print(json.dumps(answer, indent=1, allow_nan=False))
        return
    _print_notes(study.results)
    _print_study(study)
    print(f"figure:  {figures[0]}  (and .svg)")
    print(f"results: {out / 'results.parquet'}")


def _print_notes(results: Sequence[Result]) -> None:
    """Whether users' own policies ran compiled."""
    for result in results:
        if result.note:
            print(f"note: {result.label} ran interpreted, because it does not compile: {result.note}")
        elif POLICIES[result.policy].source is not None:
            print(f"note: {result.label} ran compiled")


def _threads(options: argparse.Namespace) -> int | None:
    return None if options.threads is None else validation.whole(options.threads, "--threads", 1, 1024)


def _case(text: str) -> ConfiguredPolicy:
    """A policy as it is written on the command line: NAME or file.py:NAME, then :key=value,key=value."""
    head, settings = text, ""
    if "=" in text:
        head, _, settings = text[: text.index("=")].rpartition(":")
        settings += text[text.index("=") :]
        if not head:
            raise InputError(f"--policy {text}: must be NAME:key=value,key=value")
    parameters = {}
    for setting in filter(None, settings.split(",")):
        key, equals, value = setting.partition("=")
        if not equals:
            raise InputError(f"--policy {text}: '{setting}' must be key=value")
        if key.strip() in parameters:
            raise InputError(f"--policy {text}: {key.strip()} is given twice")
        parameters[key.strip()] = value.strip()
    return policy(head, **parameters)


# --- serve -----------------------------------------------------------------------------------------------------------


def _serve(options: argparse.Namespace) -> None:
    try:
        from idleband.service.http import Limits
        from idleband.service.serve import Place, read_token, serve
    except ImportError as error:
        raise InputError(f"serve: needs {error.name}; pip install 'idleband[serve]'") from None
    place = Place(
        data=Path(options.data),
        host=options.host,
        port=validation.whole(options.port, "--port", 0, 65535),
        token=read_token(options.token_file),
        limits=Limits(
            validation.whole(options.body, "--body", 1000, 2**31),
            validation.whole(options.rate, "--rate", 1, 10**9),
            validation.whole(options.connections, "--connections", 1, 10**5),
        ),
        station=options.station,
        pace=validation.whole(options.pace, "--pace", 1, 10**6),
    )
    serve(place, options.name, _allocator_settings(options))


def _allocator_settings(options: argparse.Namespace) -> Settings | None:
    """What --policy and its companions say; None if there is no policy."""
    given: dict[str, Any] = {}
    for setting in options.set:
        key, equals, value = setting.partition("=")
        if not equals or key not in SET:
            raise InputError(f"--set {setting}: must be KEY=VALUE, KEY one of {', '.join(SET)}")
        given[key] = SET[key](value)
    if options.policy is None:
        for key in ("channels", "users", "dimension"):
            if getattr(options, key) is not None:
                raise InputError(f"--{key}: must come with --policy")
        if given:
            raise InputError(f"--set {options.set[0]}: must come with --policy")
        return None
    case = _case(options.policy)
    file, colon, _ = options.policy.partition(".py:")
    name = f"{file}.py:{case.policy.name}" if colon else case.policy.name
    size = {key: getattr(options, key) for key in ("channels", "users", "dimension")}
    for key, value in size.items():
        if value is None:
            raise InputError(f"--{key}: must be given with --policy")
    return Settings.checked({"policy": name, "parameters": case.values, **size, **given})


def _float_or_text(value: str) -> Any:
    try:
        return float(value)
    except ValueError:
        return value


SET: dict[str, Callable[[str], Any]] = {
    "feedback": str, "fallback": str, "incumbent": str, "patience": str, "seed": str,
    "deadline": _float_or_text, "collision_limit": _float_or_text,
    "rewards": lambda text: [_float_or_text(part) for part in text.split(",")],
}  # fmt: skip


# --- compare ---------------------------------------------------------------------------------------------------------


def _compare(options: argparse.Namespace) -> None:
    names = [name for what in options.what for name in _between(what)]
    worlds = [_scenario(name, options.perturbation) for name in dict.fromkeys(names)]
    for world in worlds:
        if [other.name for other in worlds].count(world.name) > 1:
            raise InputError(f"scenario {world.name}: two of them have this name; give them others")
        if world.name.startswith("ranking."):
            raise InputError(
                f"scenario.name = {world.name!r}: is the name of a file that compare writes; choose another"
            )
    cases = [_case(text) for text in options.policy or ()]
    listed = every_policy() if options.all else [] if cases else [policy(name) for name in SHORTLIST]
    for case in (*listed, *map(policy, NEEDED)):  # what the gap is measured between comes along
        if case.label not in {other.label for other in cases}:
            cases.append(case)
    out, threads = _out(options, "compare"), _threads(options)
    specs = [experiment(world, cases, options.horizon, options.replications, options.seed) for world in worlds]
    with _Bar() as bar:

        def started(merged: Experiment, missing: int, total: int) -> None:
            bar.expect(missing * merged.horizon)

        work = [Work(spec, out / spec.scenario.name, started, bar.advance) for spec in specs]
        bar.start(0)
        studies = run_experiments(work, threads=threads, preparing=bar.prepare)
    wanted = {case.label for case in cases}
    tables = [ranking(study, wanted) for study in studies]
    rows = [row for table in tables for row in table]
    write_durably(out / "ranking.csv", ranking_csv(rows).encode())
    figures = save_figure(ranking_figure(panels(tables)), out / "ranking")
    if options.json:
        answer = {"ranking": ranking_json(rows), "table": str(out / "ranking.csv"), "figures": list(map(str, figures))}
        print(json.dumps(answer, indent=1, allow_nan=False))
        return
    _print_notes([result for result in studies[0].results if result.label in wanted])
    for table in tables:
        print(ranking_text(table), end="\n\n")
    print(f"{LEGEND}\n\nfigure:  {figures[0]}  (and .svg)\ntable:   {out / 'ranking.csv'}")


def _between(what: str) -> list[str]:
    """S1..S4 is all presets from the one to the other."""
    first, dots, last = what.partition("..")
    presets = list(PRESETS)
    if not dots or what.endswith(".toml"):
        return [what]
    if first not in PRESETS or last not in PRESETS or presets.index(first) > presets.index(last):
        raise InputError(f"scenario {what}: must be FIRST..LAST, two of {', '.join(presets)} in this order")
    return presets[presets.index(first) : presets.index(last) + 1]


# --- the paper -------------------------------------------------------------------------------------------------------


def _reproduce(options: argparse.Namespace) -> None:
    for part in options.only or ():
        if part not in PARTS:
            raise unknown("part", part, PARTS)
    values = asdict(QUICK if options.quick else Size()) | {"seed": options.seed}
    if options.replications is not None:
        values |= dict.fromkeys(("replications", "fewer", "neural", "neural_fewer"), options.replications)
    size = check_size(where="--", **values)
    out = _out(options, "paper-quick" if options.quick else "paper")
    began = perf_counter()
    with _Bar(rate=False) as bar:
        reproduce(
            out, size, options.only or tuple(PARTS), threads=_threads(options), started=bar.start,
            preparing=bar.prepare, progress=bar.advance,
        )  # fmt: skip
        bar.say("drawing")
        page = write_report(out)
    _print_page(options, page, f"{perf_counter() - began:.0f} s; ")


def _report(options: argparse.Namespace) -> None:
    _print_page(options, write_report(Path(options.folder)))


def _print_page(options: argparse.Namespace, page: Page, took: str = "") -> None:
    if options.json:
        answer = {
            "report": str(page.report),
            "size": asdict(page.size),
            "missing": page.missing,
            "seconds": page.seconds,
        }
        print(json.dumps(answer | {"claims": claim_rows(page.claims)}, indent=1, allow_nan=False))
        return
    print(summary_text(page.claims))
    if page.missing:
        print(f"\nnot run: {', '.join(page.missing)}; `{page.command}` goes on")
    if page.size.horizon < Size().horizon:
        print(f"\na first look ({page.size.horizon:,} slots): verdicts at this size say little")
    print(f"\n{took}{page.seconds / 60:.1f} minutes of processor time in the results")
    print(f"report:  {page.report}\nclaims:  {page.report.with_name('claims.csv')}")


# --- learned ---------------------------------------------------------------------------------------------------------


def _learned(options: argparse.Namespace) -> None:
    world = _scenario(options.what, options.perturbation)
    cases = [_case(text) for text in options.policy or ("mp-lucb", "mp-nucb")]
    size = experiment(world, cases, options.horizon, options.replications, options.seed)
    T, R, seed = size.horizon, size.replications, size.seed
    for case in cases:
        check_predicts(world, case, T)
    out = _out(options, f"{world.name}-learned")
    check_place(out)
    found = []
    with _Bar() as bar:
        bar.start(T * R * len(cases))
        for case in cases:
            bar.prepare(case.policy.name)
            found.append(learned(world, case, horizon=T, replications=R, seed=seed, progress=bar.advance))
    out.mkdir(parents=True, exist_ok=True)
    figures = save_figure(learned_figure(found), out / "learned")
    table = out / "learned.csv"
    write_durably(table, learned_csv(found).encode())
    rows = [
        {
            "policy": one.label,
            "error_played": root_mean_square(one.played_last),
            "error_played_worst": float(one.played_last.max()),
            "error_fresh": root_mean_square(one.fresh_last),
            "error_fresh_worst": float(one.fresh_last.max()),
        }
        for one in found
    ]
    if options.json:
        print(json.dumps({"errors": rows, "table": str(table), "figures": list(map(str, figures))}, indent=1))
        return
    print(f"{world.name}, {world.perturbation.kind} model: {T:,} slots x {R} replications")
    print("error of the predicted perturbation, root mean square, as a share of its standard deviation")
    print("(100%: no better than a constant); played: in the last tenth; in brackets the worst replication\n")
    cells = [["policy", "played", "fresh contexts"]]
    for row in rows:
        errors = [(row[f"error_{where}"], row[f"error_{where}_worst"]) for where in ("played", "fresh")]
        cells.append([str(row["policy"]), *(f"{mean:.1%} ({worst:.1%})" for mean, worst in errors)])
    print(aligned(cells))
    print(f"\nfigure:  {figures[0]}  (and .svg)\ntable:   {table}")


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed / 1e6:.2f} M slots/s" if task.speed else "")


class _Bar:
    """A progress bar with rate and time left, on a terminal; elsewhere nothing."""

    def __init__(self, rate: bool = True) -> None:
        fixed = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
        columns = (*fixed, *((_Rate(),) if rate else ()), TimeRemainingColumn())
        self.display = Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
        self.task, self.total = TaskID(0), 0.0

    def __enter__(self) -> Self:
        return self

    def start(self, slots: float) -> None:
        self.display.start()
        self.total = slots
        self.task = self.display.add_task("", total=slots)

    def expect(self, slots: float) -> None:
        """So many slots more than it was started with."""
        self.total += slots
        self.display.update(self.task, total=self.total)

    def prepare(self, policy: str) -> None:
        self.say(f"compiling {policy}, once")

    def say(self, what: str) -> None:
        self.display.update(self.task, description=what)

    def advance(self, slots: float) -> None:
        self.display.update(self.task, advance=slots, description="running")

    def __exit__(self, *_: object) -> None:
        self.display.stop()


def _print_study(study: Study) -> None:
    print("\nmean per slot over replications, +- half a 95% interval where there are several; best first\n")
    rows = [["policy", "reward", "regret static", "regret genie", "sub-optimal (static)", "collisions"]]
    for label, row in study.table().iterrows():
        cells = [
            f"{row[c]:.4f}" + (f" +-{row[c + '_pm']:.4f}" if math.isfinite(row[c + "_pm"]) else "")
            for c in ("reward", "regret_static", "regret_genie", "suboptimal_static", "collisions")
        ]
        rows.append([str(label), *cells])
    print(aligned(rows))
    print("\nregret below 0: more than the best fixed channels earn; sub-optimal and collisions: picks per slot\n")


# --- what there is ---------------------------------------------------------------------------------------------------


def _scenarios(options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps({name: preset._asdict() for name, preset in PRESETS.items()}, indent=1))
        return
    for name, preset in PRESETS.items():
        print(f"{name}  {preset.note}")
    print("\nA scenario of your own is a TOML file: see docs/scenarios.md. `idleband show S1` prints a card.")


def _policies(options: argparse.Namespace) -> None:
    if options.json:
        listing = {
            name: {
                "description": p.description,
                "reference": p.reference,
                "knows": [word for word in KNOWLEDGE if word in p.knows],
                "parameters": {
                    q.name: {"default": q.default, "allowed": q.allowed, "meaning": q.meaning}
                    for q in p.parameters.values()
                },
            }
            for name, p in POLICIES.items()
        }
        print(json.dumps(listing, indent=1))
        return
    for name, p in POLICIES.items():
        told = [word for word in KNOWLEDGE if word in p.knows]
        print(f"{name}\n    {p.description}  [{p.reference}]" + f"\n    knows: {', '.join(told)}" * bool(told))
        for q in p.parameters.values():
            default = str(q.default).lower() if isinstance(q.default, bool) else q.default
            print(f"      {q.name} = {default}: {q.meaning} ({q.allowed})")


def _show(options: argparse.Namespace) -> None:
    seed = validation.whole(options.seed, "--seed", 0, 2**63 - 1)
    data = card(_scenario(options.what, options.perturbation), seed)
    print(json.dumps(data, indent=1) if options.json else card_text(data))


def _cost(options: argparse.Namespace) -> None:
    world = _scenario(options.what)
    cost = world.cost([c.strip() for c in options.channels.split(",")])
    if options.json:
        print(json.dumps({"scenario": world.name, "channels": options.channels, "cost": cost}))
    else:
        print(f"{cost:.3f}")


def _plot(options: argparse.Namespace) -> None:
    if (Path(options.folder) / SETTINGS).exists():
        for path in sorted(write_report(Path(options.folder)).report.with_name("figures").glob("*.png")):
            print(path)
        return
    study = load(options.folder)
    if not study.complete:
        print("note: the experiment asks for more than has been run; the same run command goes on with it")
    for path in save_figures(study.scenario, study.results, Path(options.folder)):
        print(path)


def _bench(options: argparse.Namespace) -> None:
    data = bench()
    if options.json:
        print(json.dumps(data, indent=1))
        return
    size = data["scenario"]
    print(f"one core, {size['name']}: K = {size['K']}, M = {size['M']}, d = {size['d']}; best of {data['rounds']} runs")
    rows = [("", "us a slot", "x bare loop", "slots a second")]
    for row in data["loops"]:
        ratio, rate = f"{row['ratio_to_bare']:.2f}", f"{row['slots_per_second']:,.0f}"
        rows.append((row["loop"], f"{row['microseconds']:.3f}", ratio, rate))
    print(aligned(rows))
