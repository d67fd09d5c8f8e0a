"""Output and files of each command."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas
import pytest

import idleband as ib
from idleband.cli.main import COMMANDS
from idleband.cli.parser import GAP_REFERENCES, PERTURBATIONS, SHORTLIST
from idleband.experiments.ranking import NEEDED
from idleband.policies.registry import all_policies
from idleband.scenario.perturbation import PERTURBATION_MODELS
from tests.cli.calls import SMALL, Refuse, Run
from tests.own_model import LOUD
from tests.own_policy import MINE


def test_version_is_printed(ok: Callable[..., str]) -> None:
    assert ok("--version") == f"idleband {ib.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["trace"], ["run", "--help"], ["show", "--help"]])
def test_help_is_printed(ok: Callable[..., str], arguments: list[str]) -> None:
    assert ok(*arguments).startswith("usage: idleband")


def test_names_in_the_parser_are_those_of_the_package() -> None:
    """The parser repeats them as text, because it must not import slow modules."""
    assert set(SHORTLIST) <= set(ib.POLICIES)
    assert GAP_REFERENCES == NEEDED
    assert tuple(PERTURBATION_MODELS) == PERTURBATIONS


def test_scenarios_are_listed(ok: Callable[..., str]) -> None:
    text, data = ok("scenarios"), json.loads(ok("scenarios", "--json"))
    assert list(data) == ["S1", "S2", "S3", "S4"]
    assert data["S4"]["p01"][3] == 0.5
    assert all(f"{name}  " in text for name in data)


def test_policies_are_listed_on_one_line_each(ok: Callable[..., str]) -> None:
    text, data = ok("policies"), json.loads(ok("policies", "--json"))
    assert list(data) == list(all_policies())
    assert sorted(line.split()[0] for line in text.splitlines() if line.startswith("  ")) == sorted(data)
    assert data["mp-lucb"]["parameters"]["beta"]["default"] == 1.0
    assert data["mp-lucb-rca"]["parameters"]["frame"]["default"] == "rca"
    assert [data[name]["knows"] for name in ("mp-ucb", "mp-lucb")] == [[], ["contexts"]]
    for line in text.splitlines():  # no description of the package is cut; other tests may have registered policies
        name = line.split()[0] if line.startswith("  ") else ""
        assert not name or all_policies()[name].source is not None or data[name]["description"] in line


def test_one_policy_is_described_with_parameters_ranges_and_reference(ok: Callable[..., str]) -> None:
    text, data = ok("policies", "mp-lucb"), json.loads(ok("policies", "mp-lucb", "--json"))
    assert list(data) == ["mp-lucb"]
    words = " ".join(text.split())
    assert f"mp-lucb {data['mp-lucb']['description']} reference: {data['mp-lucb']['reference']}" in words
    for name, parameter in data["mp-lucb"]["parameters"].items():
        default = str(parameter["default"]).lower() if isinstance(parameter["default"], bool) else parameter["default"]
        assert f"{name} = {default} {parameter['meaning']} ({parameter['allowed']})" in words
    assert "contexts, parameters, all states" in " ".join(ok("policies", "genie").split())


def test_show_describes_a_preset(ok: Callable[..., str]) -> None:
    text, data = ok("show", "S4"), json.loads(ok("show", "S4", "--json"))
    assert text.startswith("S4: 10 channels, 5 assigned per slot\n")
    assert data["best_without_perturbation"] == [1, 3, 4, 6, 7]
    assert json.loads(ok("show", "S4", "--json", "--seed", 1))["theta"] != data["theta"]


def test_show_describes_the_scenario_of_a_file(ok: Callable[..., str]) -> None:
    Path("mine.toml").write_text('[scenario]\nname = "two"\np01 = [0.1, 0.3]\np10 = [0.3, 0.1]\nusers = 1\n')
    assert json.loads(ok("show", "mine.toml", "--json"))["good_share"] == pytest.approx([0.25, 0.75])


def test_another_perturbation_model_makes_another_scenario(ok: Callable[..., str]) -> None:
    data = json.loads(ok("show", "S4", "--perturbation", "cosine", "--json"))
    assert (data["name"], data["perturbation"]["kind"]) == ("S4-cosine", "cosine")
    assert data["clear"] == pytest.approx([0.7] * 10)
    assert json.loads(ok("show", "S4", "--perturbation", "linear", "--json"))["name"] == "S4"
    answer = json.loads(ok("run", "S4", *SMALL, "--perturbation", "quadratic", "--json"))
    assert answer["results"] == "results/S4-quadratic/results.parquet"
    Path("mine.toml").write_text('[scenario]\nbase = "S2"\n[[policy]]\nname = "mp-random"\n')
    ok("run", "mine.toml", "--horizon", 50, "--replications", 1, "--perturbation", "none")
    assert ib.load("results/S2-none").scenario.perturbation.kind == "none"


def test_learned_writes_errors_table_and_figure(ok: Callable[..., str]) -> None:
    size = ("--horizon", 600, "--replications", 2)
    text = ok("learned", "S1", *size, "--policy", "mp-lucb", "--policy", "mp-lucb-printed", "--out", "out")
    assert text.startswith("S1, perturbation model linear: 600 slots x 2 replications\n")
    assert "figure:  out/learned.png" in text
    assert Path("out/learned.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in Path("out/learned.svg").read_bytes()[:500]
    table = pandas.read_csv("out/learned.csv")
    assert sorted(set(table.label)) == ["mp-lucb", "mp-lucb-printed"]
    assert set(table.replication) == {0, 1}
    assert table.t.max() == 600
    answer = json.loads(ok("learned", "S1", *size, "--policy", "mp-lucb", "--json"))
    (errors,) = answer["errors"]
    assert errors["error_fresh_worst"] == table[(table.label == "mp-lucb") & (table.t == 600)].error_fresh.max()
    assert 0 < errors["error_played"] <= errors["error_played_worst"] < 0.2
    assert answer["figures"][0] == "results/S1-learned/learned.png"


def test_cost_of_the_example_in_the_paper(ok: Callable[..., str]) -> None:
    assert ok("cost", "S4", "ch1,ch2,ch3,ch4,ch5") == ok("cost", "S4", "0,1,2,3,4") == "0.155\n"
    assert json.loads(ok("cost", "S4", "0,1,2,3,4", "--json"))["cost"] == pytest.approx(0.155, abs=5e-4)
    assert float(ok("cost", "S4", "1,3,4,6,7")) == 0


def test_optimum_of_two_channels(ok: Callable[..., str]) -> None:
    """It is 0.1 + 0.9 (0.7 * 0.6 + 0.3 * 0.7 * 0.5) without memory; the bound plays one channel on average only."""
    Path("two.toml").write_text('[scenario]\nname = "two"\np01 = [0.6, 0.5]\np10 = [0.4, 0.5]\nusers = 1\n')
    exact = 0.1 + 0.9 * (0.7 * 0.6 + 0.3 * 0.7 * 0.5)
    first, second = ok("optimum", "two.toml").splitlines()
    assert first.startswith("two: optimal reward 0.5725")
    assert second.startswith("upper bound for policies that observe played channels only: 0.")
    assert second.endswith("% above")
    answer = json.loads(ok("optimum", "two.toml", "--json"))
    assert answer["lower"] - 1e-9 <= exact <= answer["upper"] + 1e-9 < answer["bound"]
    assert float(ok("optimum", "two.toml", "--perturbation", "none").split()[3]) == pytest.approx(0.64, abs=1e-4)
    assert "upper bound" not in ok("optimum", "two.toml", "--users", "2", "--tolerance", "1e-3").splitlines()[0]


def test_run_and_plot_as_separate_processes(idleband: Run) -> None:
    arguments = ("run", "S1", *SMALL, "--policy", "mp-ucb:L=0.5", "--out", "out")
    first = idleband(*arguments)
    assert (first.returncode, first.stderr) == (0, "")  # no progress bar where stderr is not a terminal
    assert first.stdout.startswith("S1: 2 policies x 2 replications x 200 slots\n")
    assert all(
        word in first.stdout for word in ("mp-random ", "mp-ucb L=0.5 ", "out/reward.png", "out/results.parquet")
    )
    assert ib.load("out").labels == ["mp-random", "mp-ucb L=0.5"]

    Path("out/reward.png").unlink()
    again = idleband("plot", "out")
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout == "out/reward.png\nout/reward.svg\n"
    assert Path("out/reward.png").read_bytes().startswith(b"\x89PNG")

    assert "slots, 6 of 6 tasks already there\n" in idleband(*arguments).stdout


def test_scale_of_the_paper_writes_the_regret_figure(ok: Callable[..., str]) -> None:
    answer = json.loads(ok("run", "S1", *SMALL, "--out", "out", "--scale", "paper", "--json"))
    assert answer["figures"] == ["out/regret.png", "out/regret.svg"]
    assert not Path("out/reward.png").exists()
    Path("out/regret.png").unlink()
    assert ok("plot", "out", "--scale", "paper") == "out/regret.png\nout/regret.svg\n"
    assert Path("out/regret.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("source", "note"),
    [
        (MINE.replace(" if object() else 0", ""), "note: mine ran compiled\n"),
        (MINE, "note: mine ran interpreted, because it does not compile: "),
    ],
    ids=["compiled", "interpreted"],
)
def test_run_reports_whether_a_user_policy_was_compiled(ok: Callable[..., str], source: str, note: str) -> None:
    Path("mine.py").write_text(source)
    assert note in ok("run", "S1", "--policy", "mine.py:mine", "--horizon", 50, "--out", "out")
    assert ib.load("out")["mine"].plays.tolist() == [[50] * 5 + [0] * 5] * 5


def test_perturbation_model_from_a_file(ok: Callable[..., str]) -> None:
    Path("scenarios").mkdir()
    Path("scenarios/models.py").write_text(LOUD)
    Path("scenarios/mine.toml").write_text(
        '[scenario]\nbase = "S2"\nperturbation = { kind = "models.py:loud", clear = 0.6 }\n'
    )
    assert "perturbation  loud: n = s max(x_1, ..., x_d) + t; clear = 0.6" in ok("show", "scenarios/mine.toml")
    ok("run", "scenarios/mine.toml", *SMALL, "--out", "out")
    ok("run", "scenarios/mine.toml", *SMALL, "--replications", 3, "--out", "out")
    ok("plot", "out")
    assert ib.load("out")["mp-random"].replications == 3
    assert "S1-loud: " in ok("run", "S1", "--perturbation", "scenarios/models.py:loud", *SMALL)


def test_run_reads_an_experiment_file(ok: Callable[..., str]) -> None:
    Path("mine.toml").write_text(
        """
        [scenario]
        name = "my scenario"
        base = "S2"
        users = 3
        [experiment]
        horizon = 1e2
        replications = 2
        seed = 7
        [[policy]]
        name = "mp-random"
        """
    )
    out = ok("run", "mine.toml", "--replications", 3)
    assert "my scenario: 1 policy x 3 replications x 100 slots\n" in out
    study = ib.load("results/my scenario")
    assert (study.seed, study.scenario, study.labels) == (
        7,
        ib.scenario("S2", name="my scenario", users=3),
        ["mp-random"],
    )


def test_run_prints_json(ok: Callable[..., str]) -> None:
    answer = json.loads(ok("run", "S1", *SMALL, "--out", "out", "--json"))
    assert answer["results"] == "out/results.parquet"
    assert answer["figures"] == ["out/reward.png", "out/reward.svg"]
    one = ok("run", "S1", "--policy", "mp-random", "--horizon", 9, "--replications", 1, "--out", "one", "--json")
    assert json.loads(one, parse_constant=pytest.fail)["per_slot"][0]["reward_pm"] is None
    assert answer["per_slot"][0]["reward"] == pytest.approx(ib.load("out").table().reward.iloc[0])


def test_plot_notes_an_incomplete_experiment(ok: Callable[..., str]) -> None:
    ok("run", "S1", *SMALL, "--out", "out")
    file = Path("out/experiment.toml")
    file.write_text(re.sub(r"replications = \d+", "replications = 77", file.read_text()))
    assert ok("plot", "out").startswith("note: the experiment is not complete")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", ""], "--out: must be the name of a folder"),
        (["--policy", "mp-ucb:L=1,L=2"], "L is given twice"),
    ],
)
def test_run_refuses_empty_folder_and_repeated_parameter(refuse: Refuse, arguments: list[str], message: str) -> None:
    assert message in refuse("run", "S1", *arguments)


def test_run_with_a_horizon_of_one_slot(ok: Callable[..., str]) -> None:
    assert "1 slot\n" in ok("run", "S1", "--policy", "mp-random", "--horizon", 1, "--out", "out")


def test_compare_ranks_named_policies_and_adds_none(ok: Callable[..., str]) -> None:
    """It writes text, CSV and figures; the same command simulates nothing again."""
    named = ["--policy", "mp-ucb", "--policy", "rca-m"]
    arguments = ["compare", "S1..S2", *named, "--horizon", 300, "--replications", 2, "--out", "c"]
    text = ok(*arguments)
    table = pandas.read_csv("c/ranking.csv")
    for name in ("S1", "S2"):
        assert f"{name}, perturbation linear: 2 replications of 300 slots" in text
        assert (Path("c") / name / "results.parquet").exists()
        part = table[table.scenario == name]
        assert sorted(part.label) == ["mp-ucb", "rca-m"]
        assert part.gap_closed.isna().all()
        assert list(part.reward) == sorted(part.reward, reverse=True)
        assert (Path("c") / name / "reward.png").stat().st_size > 10_000
    assert Path("c/ranking.png").stat().st_size > 10_000
    before = {path: path.stat().st_mtime_ns for path in Path("c").glob("*/tasks.log")}
    data = json.loads(ok(*arguments, "--json"))
    assert [row["reward"] for row in data["ranking"]] == list(table.reward)
    assert {path: path.stat().st_mtime_ns for path in Path("c").glob("*/tasks.log")} == before
    assert ok("plot", "c").splitlines() == [
        f"c/{name}/reward.{kind}" for name in ("S1", "S2") for kind in ("png", "svg")
    ]


def test_compare_default_policies_and_user_policy(ok: Callable[..., str]) -> None:
    small = ["--horizon", 50, "--replications", 1, "--perturbation", "none", "--json"]
    rows = json.loads(ok("compare", "S2", *small))["ranking"]
    assert {row["policy"] for row in rows} == set(SHORTLIST)
    assert {row["scenario"] for row in rows} == {"S2-none"}
    Path("mine.py").write_text(MINE)
    rows = json.loads(ok("compare", "S2", "--policy", "mine.py:mine", *small))["ranking"]
    assert {row["policy"] for row in rows} == {"mine"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["S9"], "scenario 'S9'"),
        (["S1..S9"], "scenario S1..S9: must be FIRST..LAST"),
        (["S4..S1"], "scenario S4..S1: must be FIRST..LAST"),
        (["S1.."], "scenario S1..: must be FIRST..LAST"),
        (["S1", "--policy", "whittle:contexts=true"], "contexts = True: is False in this policy"),
        (["S1", "--policy", "oracle-static:value=realised"], "value = realised: is static in this policy"),
        (["S1", "--policy", "mp-belif"], "did you mean 'mp-belief'?"),
        (["S1", "--policy", "mp-belief:forget=-1"], "forget = '-1': must be a finite number of at least 0"),
        (["S1", "--replications", "0"], "replications"),
        (["S1", "--al"], "unrecognized arguments: --al"),
        ([], "the following arguments are required"),
    ],
)
def test_compare_refuses_bad_arguments(refuse: Refuse, arguments: list[str], message: str) -> None:
    assert message in refuse("compare", *arguments)


def test_compare_refuses_a_scenario_named_like_its_files(refuse: Refuse) -> None:
    Path("mine.toml").write_text('[scenario]\nname = "ranking.csv"\np01 = [0.1, 0.3]\np10 = [0.3, 0.1]\nusers = 1\n')
    assert "is the name of a file that compare writes" in refuse("compare", "mine.toml")


def test_compare_reports_that_a_user_policy_ran_interpreted(ok: Callable[..., str]) -> None:
    Path("mine.py").write_text(MINE)
    text = ok("compare", "S2", "--policy", "mine.py:mine", "--horizon", 20, "--replications", 1)
    assert text.startswith("note: mine ran interpreted")


def test_compare_ignores_other_policies_stored_in_the_folder(ok: Callable[..., str]) -> None:
    """The gap is measured from rca-m with default parameters."""
    small = ["--horizon", 300, "--replications", 2, "--out", "c", "--json"]
    ok("compare", "S4", "--policy", "mp-belief-lucb", *small)
    named = ["mp-random", "rca-m:L=50", "rca-m", "oracle-belief"]
    options = [word for name in named for word in ("--policy", name)]
    rows = json.loads(ok("compare", "S4", *options, *small))["ranking"]
    found = {row["label"]: row for row in rows}
    assert sorted(found) == ["mp-random", "oracle-belief", "rca-m", "rca-m L=50"]
    assert min(row["behind"] for row in rows if "parameters" not in row["knows"]) == 0
    assert found["rca-m"]["gap_closed"] == 0


# --- start-up --------------------------------------------------------------------------------------------------------

HEAVY = ("numba", "llvmlite", "pandas", "pyarrow", "matplotlib", "scipy", "rich", "jinja2", "starlette", "uvicorn")
LOADED = """
import sys
from idleband.cli import main
try:
    main(sys.argv[1:])
finally:
    print(*sorted(set(name.partition(".")[0] for name in sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["policies"], ["policies", "mp-nucb"], ["scenarios"], ["show", "S1"], ["show", "S4"]],
    ids=" ".join,
)
def test_describing_commands_load_no_heavy_modules(arguments: list[str]) -> None:
    """The compiler, pandas and matplotlib would make them slow."""
    program = [sys.executable, "-c", LOADED, *arguments]
    result = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert not set(HEAVY) & set(result.stderr.split())


# --- width -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        *([*name.split(), "--help"] for name in COMMANDS),
        ["scenarios"],
        ["policies"],
        *(["policies", name] for name in ib.POLICIES),
        ["show", "S2"],
        ["show", "S4", "--perturbation", "cosine"],
        ["run", "S1", *SMALL, "--policy", "mp-ucb:L=0.5", "--out", "out"],
        ["run", "S1", *SMALL, "--policy", "mp-lucb-rca:beta=0.123,lambda=0.5,L=0.25,synchronous=true", "--out", "out"],
        ["compare", "S1", "--policy", "mp-ucb", "--horizon", 300, "--replications", 2, "--out", "out"],
        ["learned", "S1", "--policy", "mp-lucb", "--horizon", 300, "--replications", 2, "--out", "out"],
    ],
    ids=lambda arguments: " ".join(map(str, arguments[:2])),
)
def test_text_fits_80_columns(ok: Callable[..., str], monkeypatch: pytest.MonkeyPatch, arguments: list[object]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    wide = [line for line in ok(*arguments).splitlines() if len(line) > 80]
    assert not wide
