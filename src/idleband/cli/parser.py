"""Arguments of the command line. This module imports nothing that is slow to load."""

import argparse
import difflib
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, NoReturn

from idleband.errors import InputError
from idleband.paper.parts import PARTS

# Policies that `compare` ranks by default.
SHORTLIST = ("rca-m", "mp-ucb", "mp-lucb", "mp-belief", "mp-belief-lucb", "oracle-belief", "oracle-whittle")
USERS_SHORTLIST = ("lbt-sticky", "selfish-klucb", "mctopm", "musical-chairs", "mp-ucb", "mp-belief")
# Policies between which `compare` measures the gap closed; the same as idleband.experiments.ranking.NEEDED.
GAP_REFERENCES = ("rca-m", "oracle-belief", "oracle-whittle")
PERTURBATIONS = ("none", "linear", "quadratic", "cosine")
SCALES = ("reward", "paper")

# Formats of recordings; the same as idleband.trace.formats.registry.MODULES.
FORMATS = (
    "rtl_power", "hackrf_sweep", "soapy_power", "iw_survey", "sigmf", "k7", "msod", "ecallisto", "csv", "npz",
    "parquet",
)  # fmt: skip

# Models of `trace fit`; the same as idleband.trace.fit.fit.MODELS.
MODELS = ("auto", "markov", "semi-markov", "regimes")

SCENARIO = "SCENARIO|FILE.toml|TRACE.parquet"
POLICY = "NAME[:key=value,...]"


class Parser(argparse.ArgumentParser):
    """An argument parser that raises InputError, accepts no abbreviations and suggests the closest option.

    Its arguments and commands can be listed, for suggestions and for the reference in the documentation.
    """

    def __init__(self, **settings: Any) -> None:
        self.arguments: list[argparse.Action] = []
        self.commands: Mapping[str, Parser] = {}
        self.summary = ""  # one line, for a command
        super().__init__(allow_abbrev=False, **settings)

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:
        """Add an argument and remember it."""
        action = super().add_argument(*names, **settings)
        self.arguments.append(action)
        return action

    def error(self, message: str) -> NoReturn:
        """Raise InputError instead of printing the usage and exiting."""
        raise InputError(f"{message} (see {self.prog} --help)")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown arguments here: the parser of a command has other options than the parser above it."""
        found, unrecognized = super().parse_known_args(args, namespace)
        if unrecognized:
            options = [option for argument in self.arguments for option in argument.option_strings]
            close = difflib.get_close_matches(unrecognized[0], options, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            self.error(f"unrecognized arguments: {' '.join(unrecognized)}{hint}")
        return found, unrecognized


def build_parser() -> Parser:
    """Return the parser of the whole command line."""
    parser = Parser(
        prog="idleband",
        description="Simulate and run policies that assign idle radio channels to secondary users.",
        epilog="`idleband COMMAND --help` describes a command and its options.",
    )
    parser.add_argument("--version", action="version", version=f"idleband {version('idleband')}")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True, parser_class=Parser)
    _add_experiments(commands)
    _add_paper(commands)
    _add_serve(commands)
    groups = {"trace": _add_trace(commands), "journal": _add_journal(commands)}
    _add_evaluate(commands)
    _add_advise(commands)
    _add_information(commands)
    parser.commands = {
        name: command
        for first, found in commands.choices.items()
        for name, command in (groups[first].items() if first in groups else [(first, found)])
    }
    return parser


def _add(commands: Any, name: str, summary: str, details: str = "") -> Parser:
    command: Parser = commands.add_parser(
        name, help=summary, description=f"{summary[0].upper()}{summary[1:]}. {details}"
    )
    command.summary = summary
    return command


def _add_experiments(commands: Any) -> None:
    run = _add(
        commands, "run", "run an experiment from a preset or a TOML file",
        "The same command continues an interrupted experiment; with more policies or replications it extends it.",
    )  # fmt: skip
    run.add_argument("what", metavar=SCENARIO, help="a preset, S1 to S4, an experiment file, or a trace to replay")
    _add_policy(run, "default: those of the file, or all policies of the package")
    run.add_argument(
        "--horizon", metavar="T", help="number of slots (default 1e5, or the length of a trace; at most 1e10)"
    )
    run.add_argument("--replications", metavar="R", help="number of independent replications (default 5)")
    run.add_argument("--seed", metavar="N", help="seed of the random streams (default 0)")
    _add_output(run, "results/NAME")
    _add_device(run)
    _add_scale(run)

    compare = _add(
        commands, "compare", "rank policies side by side, with paired intervals",
        "The column 'gap closed' places a policy between rca-m (0 per cent) and the better of oracle-belief and"
        " oracle-whittle (100 per cent). These three are part of the default list and of --all. Where other policies"
        " are named with --policy, none is added, and the column is empty without them.",
    )  # fmt: skip
    compare.add_argument(
        "what", metavar=SCENARIO, nargs="+",
        help="presets (S1, or S1..S4 for a range), files, of which the [scenario] is used, or traces to replay",
    )  # fmt: skip
    compare.add_argument("--all", action="store_true", help="rank every policy of the package")
    _add_policy(compare, f"may be combined with --all; default: {', '.join(SHORTLIST)}")
    _add_size(compare, horizon="1e5", replications="5")
    _add_output(compare, "results/compare")
    _add_device(compare)

    learned = _add(commands, "learned", "compare the perturbation that policies predict with the true one")
    learned.add_argument("what", metavar=SCENARIO)
    _add_policy(learned, "must have a model of the perturbation; default: mp-lucb and mp-nucb")
    _add_size(learned, horizon="5e4", replications="3")
    learned.add_argument("--out", metavar="DIR", help="folder for figure and table (default results/NAME-learned)")

    plot = _add(commands, "plot", "draw the figures of stored results again")
    plot.add_argument("folder", metavar="DIR", help="a folder written by run, compare or reproduce")
    _add_scale(plot)

    for command in (run, compare):
        command.add_argument(
            "--coordination", metavar="WHO",
            help="station: a base station selects channels (default); none: users do so themselves, each by itself",
        )  # fmt: skip
    for command in (run, compare, learned):
        _add_users(command)
        _add_perturbation(command)
        _add_json(command)


def _add_paper(commands: Any) -> None:
    reproduce = _add(
        commands, "reproduce", "reproduce the paper: tables, figures, claims with verdicts, and one report",
        "The same command continues an interrupted reproduction.",
    )  # fmt: skip
    reproduce.add_argument("--quick", action="store_true", help="a short version: 10^4 slots, three replications")
    reproduce.add_argument(
        "--only", action="append", metavar="PART", help=f"one part; may be repeated; one of {', '.join(PARTS)}"
    )
    reproduce.add_argument(
        "--replications", metavar="R", help="replications of every policy (default 20, fewer for MP-NUCB and the map)"
    )
    reproduce.add_argument("--seed", metavar="N", default="0", help="seed of the random streams (default 0)")
    _add_output(reproduce, "results/paper, or results/paper-quick")
    report = _add(commands, "report", "write the report of a reproduction again from stored results")
    report.add_argument("folder", metavar="DIR", help="a folder written by reproduce")
    for command in (reproduce, report):
        _add_json(command)


def _add_serve(commands: Any) -> None:
    serve = _add(commands, "serve", "assign channels over HTTP, with a live web page")
    serve.add_argument(
        "--data", metavar="DIR|URL", required=True,
        help="folder of the journal, or postgresql://USER@HOST/DATABASE, which several processes may share",
    )  # fmt: skip
    serve.add_argument(
        "--advertise", metavar="URL",
        help="address at which other processes with the same database reach this one (default http://HOST:PORT)",
    )  # fmt: skip
    serve.add_argument(
        "--lease", metavar="SECONDS",
        help="time after which they take its allocators over when it does not answer (default 4)",
    )  # fmt: skip
    serve.add_argument(
        "--policy", metavar=POLICY, help="a policy, or file.py:NAME (not needed for an allocator that exists)"
    )
    serve.add_argument("--channels", metavar="K", help="number of channels")
    serve.add_argument("--users", metavar="M", help="channels assigned per slot, at most")
    serve.add_argument(
        "--dimension", metavar="d", help="length of a context vector; needed if the policy uses contexts"
    )
    serve.add_argument("--name", help="name of the allocator (default main)")
    serve.add_argument(
        "--set", action="append", metavar="KEY=VALUE", default=[],
        help="another setting of the allocator: channel_names, feedback, rewards, patience, fallback, incumbent,"
        " deadline, collision_limit, missed, false_alarm, switching_cost or seed; may be repeated",
    )  # fmt: skip
    serve.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1; any other requires a token)"
    )
    serve.add_argument("--port", default="8765", help="port to listen on (default 8765; 0: any free port)")
    serve.add_argument(
        "--token-file",
        metavar="FILE",
        help="file with the token that clients must send, or with lines of NAME ROLE TOKEN",
    )
    serve.add_argument(
        "--telemetry", metavar="URL",
        help="collector of OpenTelemetry to which traces are sent, such as http://localhost:4318 (default: none)",
    )  # fmt: skip
    serve.add_argument("--body", metavar="BYTES", default=str(4 * 2**20), help="largest request body (default 4 MiB)")
    serve.add_argument(
        "--rate", metavar="N", default="20000", help="requests per second from one address, at most (default 20000)"
    )
    serve.add_argument("--connections", metavar="N", default="256", help="open connections, at most (default 256)")
    serve.add_argument(
        "--per-address", metavar="N", default="128", help="open connections from one address, at most (default 128)"
    )
    serve.add_argument(
        "--proxy", action="append", metavar="ADDRESS", default=[],
        help="address or network of a proxy whose X-Forwarded-For header names the client; may be repeated",
    )  # fmt: skip
    serve.add_argument(
        "--memory", metavar="MIB", default="1024",
        help="memory of open allocators in MiB; beyond it those unused for longest are closed (default 1024)",
    )  # fmt: skip
    serve.add_argument(
        "--station", metavar="SCENARIO|TRACE",
        help="run a simulated base station on this scenario, or replay this trace file (.parquet)",
    )  # fmt: skip
    serve.add_argument("--pace", metavar="N", default="10", help="slots per second of that station (default 10)")
    serve.add_argument(
        "--trace", action="append", metavar="TRACE", default=[],
        help="a trace file (.parquet) that the playground offers for replay, by the name of the file; may be repeated",
    )  # fmt: skip


def _add_journal(commands: Any) -> dict[str, Parser]:
    group = _add(
        commands, "journal", "back up, verify, restore, export and copy the journal of a service",
        "`idleband journal COMMAND --help` describes a command and its options.",
    )  # fmt: skip
    below = group.add_subparsers(dest="subcommand", metavar="command", required=True, parser_class=Parser)
    backup = _add(
        below, "backup", "copy the journal of a service, which may be running, and check the copy",
        "The backup is a folder that `idleband serve --data` could use. Use this command and not cp, which copies the"
        " files of a running service at different times.",
    )  # fmt: skip
    backup.add_argument("data", metavar="DIR", help="folder of the service, its --data")
    backup.add_argument("--out", metavar="BACKUP", required=True, help="folder to write; must not exist, or be empty")
    verify = _add(
        below, "verify", "check a journal or a backup completely, and list what is damaged or missing",
        "Nothing is changed. The service may be running. The exit status is 2 if anything is wrong.",
    )  # fmt: skip
    verify.add_argument("data", metavar="DIR|URL", help="folder of a service, a backup, or a database")
    restore = _add(
        below, "restore", "check a backup and copy it into a new folder for a service",
        "An existing journal is never overwritten.",
    )  # fmt: skip
    restore.add_argument("backup", metavar="BACKUP", help="folder that `idleband journal backup` wrote")
    restore.add_argument("--data", metavar="DIR", required=True, help="folder to write; must not exist, or be empty")
    export = _add(
        below, "export", "write the decisions of an allocator, with their feedback, into a Parquet file",
        "The file is what `idleband evaluate` reads. It contains the decisions that the journal keeps. The service may"
        " be running.",
    )  # fmt: skip
    export.add_argument("data", metavar="DIR|URL", help="folder of a service, a backup, or a database")
    export.add_argument("allocator", metavar="ALLOCATOR", help="name of the allocator")
    export.add_argument("out", metavar="LOG.parquet", help="file to write")
    copy = _add(
        below, "copy", "copy the journal of a service that was stopped into a PostgreSQL database, and check the copy",
        "The database must have no allocators of idleband yet. Services then use it with `idleband serve --data URL`.",
    )  # fmt: skip
    copy.add_argument("source", metavar="DIR", help="folder of a service, or a backup")
    copy.add_argument("target", metavar="URL", help="database to write: postgresql://USER@HOST/DATABASE")
    found = {
        "journal backup": backup,
        "journal verify": verify,
        "journal restore": restore,
        "journal export": export,
        "journal copy": copy,
    }
    for command in found.values():
        _add_json(command)
    return found


def _add_evaluate(commands: Any) -> None:
    evaluate = _add(
        commands, "evaluate", "estimate what other policies would have earned in the slots of a log",
        "The log must be of a policy that randomises and knows its probabilities: mp-random, exp3-m or whittle-q.",
    )  # fmt: skip
    evaluate.add_argument("log", metavar="LOG.parquet", help="file that `idleband journal export` wrote")
    _add_policy(evaluate, "it selects in each slot and learns from the logged feedback")
    evaluate.add_argument(
        "--channels", action="append", metavar="CHANNELS",
        help="a fixed set of M channels, by name or index from 0: ch1,ch2 or 0,1; may be repeated",
    )  # fmt: skip
    evaluate.add_argument(
        "--missing", metavar="RULE", default="refuse",
        help="plays without feedback: refuse (default), or random to assume that feedback is missing at random",
    )  # fmt: skip
    evaluate.add_argument(
        "--clip", metavar="W", help="largest inverse propensity; larger ones are replaced by it (default: none)"
    )
    evaluate.add_argument("--seed", metavar="N", default="0", help="seed of the policies' random streams (default 0)")
    _add_json(evaluate)


def _add_trace(commands: Any) -> dict[str, Parser]:
    group = _add(
        commands, "trace", "import, describe and fit recordings of spectrum",
        "`idleband trace COMMAND --help` describes a command and its options.",
    )  # fmt: skip
    below = group.add_subparsers(dest="subcommand", metavar="command", required=True, parser_class=Parser)
    load = _add(
        below, "import", "make a trace file from recordings of spectrum",
        "The format is detected from the content. A channel is busy, 1 or true, where a primary user is present.",
    )  # fmt: skip
    load.add_argument("files", metavar="FILE", nargs="+", help="recordings, consecutive in time if there are several")
    load.add_argument("--out", metavar="TRACE", required=True, help="trace file to write, such as trace.parquet")
    _add_import_options(load)
    show = _add(
        below, "show", "describe a trace: occupancy, dwell times, transitions, correlation",
        "p01 is the probability from busy to idle, p10 from idle to busy.",
    )  # fmt: skip
    show.add_argument("trace", metavar="TRACE", help="a trace file")
    show.add_argument("--out", metavar="FIGURE", help="also draw a figure into this .png or .svg file")
    fit = _add(
        below, "fit", "fit channel models to a trace, write a scenario file, and say how far to trust it",
        "Markov, semi-Markov and common-regime models are compared by log-loss on held-out parts of the trace.",
    )  # fmt: skip
    fit.add_argument("trace", metavar="TRACE", help="a trace file")
    fit.add_argument("--out", metavar="FILE.toml", required=True, help="scenario file to write")
    fit.add_argument(
        "--users", metavar="M", help="channels to assign per slot in the scenario (default a fifth of the channels)"
    )
    fit.add_argument(
        "--model", metavar="MODEL", default=MODELS[0],
        help=f"model of the scenario: {', '.join(MODELS)} (default auto, the one with the lowest log-loss)",
    )  # fmt: skip
    fit.add_argument("--figure", metavar="FIGURE", help="also draw a figure into this .png or .svg file")
    for command in (load, show, fit):
        _add_json(command)
    return {"trace import": load, "trace show": show, "trace fit": fit}


def _add_import_options(command: Parser) -> None:
    """Add the options that say how recordings are read."""
    command.add_argument("--format", metavar="FORMAT", help=f"instead of detecting it: {', '.join(FORMATS)}")
    command.add_argument(
        "--threshold", metavar="RULE",
        help="power above which a channel is busy: a level such as -70, or floor+8 or q10+8, which is the noise floor"
        " or the 10th percentile of the channel plus 8 dB (default floor+6); with rewards: the reward below which it is"
        " busy (default 0.5)",
    )  # fmt: skip
    command.add_argument("--fill", metavar="SLOTS", help="missing slots in a row to replace, at most (default 10)")
    command.add_argument("--slot", metavar="SECONDS", help="duration of a slot, a multiple of the recording's")
    command.add_argument(
        "--channels", metavar="CHANNELS",
        help="channels to keep, by index from 0, name or range: 3..52, or '704 MHz..714 MHz' (default all); the other"
        " columns of a table may contain anything",
    )  # fmt: skip
    command.add_argument(
        "--occupancy", metavar="LOW..HIGH",
        help="keep channels that are busy for more than LOW and less than HIGH of the time, such as 0.02..0.98",
    )  # fmt: skip
    command.add_argument(
        "--values", metavar="KIND",
        help="what the numbers of a table are: power, busy (1 = busy), idle (1 = idle) or reward; for SigMF: busy"
        " (annotations) or power",
    )  # fmt: skip
    command.add_argument("--bins", metavar="N", help="channels of a SigMF recording (default 64)")
    command.add_argument("--link", metavar="SRC-DST", help="one link of a k7 file (default all)")
    command.add_argument("--source", metavar="TEXT", help="origin to record in the trace file")
    command.add_argument("--license", metavar="TEXT", help="license to record in the trace file")


def _add_advise(commands: Any) -> None:
    advise = _add(
        commands, "advise", "recommend a policy for a recorded band",
        "Imports the recordings unless a trace file is given, describes and fits them, replays every suitable policy,"
        " and writes one HTML report. The same command continues an interrupted replay.",
    )  # fmt: skip
    advise.add_argument(
        "files", metavar="TRACE|FILE", nargs="+", help="a trace file, or recordings, consecutive in time"
    )
    advise.add_argument("--users", metavar="M", required=True, help="channels to assign per slot")
    _add_policy(advise, "default: all that need neither contexts nor parameters of the scenario")
    advise.add_argument("--replications", metavar="R", default="5", help="starting points in the recording (default 5)")
    advise.add_argument("--seed", metavar="N", default="0", help="seed of the random streams (default 0)")
    _add_output(advise, "results/advice-NAME")
    _add_import_options(advise)
    _add_json(advise)


def _add_information(commands: Any) -> None:
    scenarios = _add(commands, "scenarios", "list the presets")
    policies = _add(commands, "policies", "list the policies, or describe one with its parameters")
    policies.add_argument("name", metavar="NAME", nargs="?", help="the policy to describe (default: list all)")
    show = _add(commands, "show", "describe a scenario: channels, means, best channels, upper bound")
    show.add_argument("what", metavar=SCENARIO)
    show.add_argument("--seed", metavar="N", default="0", help="seed of the theta shown, if it is drawn (default 0)")
    _add_users(show)
    _add_perturbation(show)
    cost = _add(commands, "cost", "compute the regret per slot of a fixed set of channels, without perturbation")
    cost.add_argument("what", metavar=SCENARIO)
    cost.add_argument("channels", metavar="CHANNELS", help="M channels by name or index from 0: ch1,ch2 or 0,1")
    _add_users(cost)
    optimum = _add(
        commands, "optimum", "compute the optimal long-run reward per slot of a small scenario, with bounds",
        "It is the reward of the best policy that knows the scenario, and takes seconds for about four channels.",
    )  # fmt: skip
    optimum.add_argument("what", metavar=SCENARIO)
    optimum.add_argument(
        "--tolerance", metavar="X", default="1e-4", help="largest half-width of the bounds (default 1e-4)"
    )
    optimum.add_argument("--seed", metavar="N", default="0", help="seed of the theta, if it is drawn (default 0)")
    _add_users(optimum)
    _add_perturbation(optimum)
    bench = _add(commands, "bench", "measure the speed of policies on this machine")
    _add_policy(bench, "default: all policies of the package")
    _add_device(bench)
    bench.add_argument("--horizon", metavar="T", help="with --device cuda: number of slots (default 2000)")
    bench.add_argument("--replications", metavar="R", help="with --device cuda: replications (default 65536)")
    for command in (scenarios, policies, show, cost, optimum, bench):
        _add_json(command)


# --- options that several commands share -----------------------------------------------------------------------------


def _add_policy(command: Parser, note: str) -> None:
    command.add_argument(
        "--policy", action="append", metavar=POLICY,
        help=f"a policy, or file.py:NAME for a policy of your own; may be repeated ({note})",
    )  # fmt: skip


def _add_size(command: Parser, horizon: str, replications: str) -> None:
    command.add_argument(
        "--horizon", metavar="T", help=f"number of slots (default {horizon}, or the length of a trace)"
    )
    command.add_argument(
        "--replications", metavar="R", default=replications,
        help=f"number of independent replications (default {replications})",
    )  # fmt: skip
    command.add_argument("--seed", metavar="N", default="0", help="seed of the random streams (default 0)")


def _add_output(command: Parser, default: str) -> None:
    command.add_argument("--out", metavar="DIR", help=f"folder for the results (default {default})")
    command.add_argument("--threads", metavar="N", help="number of threads (default: one per core)")
    command.add_argument(
        "--workers", metavar="N",
        help="run on a Dask cluster of N processes on this machine instead of on threads, with the same results",
    )  # fmt: skip
    command.add_argument(
        "--cluster", metavar="ADDRESS",
        help="run on the workers of this Dask scheduler, such as tcp://HOST:8786 or its scheduler file (.json)",
    )  # fmt: skip


def _add_device(command: Parser) -> None:
    command.add_argument(
        "--device",
        metavar="NAME",
        help="cpu (default), or cuda: all replications of a policy together, on a GPU",
    )
    command.add_argument(
        "--precision", metavar="TYPE", help="with --device cuda: float64 (default), or float32, which is faster"
    )


def _add_scale(command: Parser) -> None:
    command.add_argument(
        "--scale", metavar="SCALE", default=SCALES[0],
        help="what the figure shows: reward (default), reward per slot and paired differences to the best policy;"
        " or paper, regret divided by M ln t as in the paper's figure 1",
    )  # fmt: skip


def _add_users(command: Parser) -> None:
    command.add_argument(
        "--users", metavar="M",
        help="channels to select in a slot, instead of the scenario's number; must be given for a trace",
    )  # fmt: skip


def _add_perturbation(command: Parser) -> None:
    command.add_argument(
        "--perturbation", metavar="MODEL",
        help=f"perturbation model to use instead of the scenario's: {', '.join(PERTURBATIONS)}, or FILE.py:NAME",
    )  # fmt: skip


def _add_json(command: Parser) -> None:
    command.add_argument("--json", action="store_true", help="print JSON")
