"""`idleband bench --device cuda` and experiments of the command line, on a simulated GPU."""

import json

import pytest

import idleband as ib
from idleband.cli import main
from idleband.policies.registry import policy
from idleband.simulation.gpu import bench
from idleband.simulation.gpu.bench import bench_on_gpu


def command(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    with pytest.raises(SystemExit, match="0"):
        main([str(argument) for argument in arguments])
    return capsys.readouterr().out


BENCH = ("bench", "--device", "cuda", "--replications", 64, "--horizon", 20, "--policy", "mp-ucb")


@pytest.fixture(autouse=True)
def one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "ROUNDS", 1)


def test_the_command_prints_slots_per_second(capsys: pytest.CaptureFixture[str]) -> None:
    out = command(capsys, *BENCH)
    assert "simulator, float64, S1: K = 10, M = 5, d = 8; 64 replications x 20 slots, best of 1 runs" in out
    assert "mp-ucb" in out
    data = json.loads(command(capsys, *BENCH, "--precision", "float32", "--json"))
    (row,) = data["policies"]
    assert data["precision"] == "float32"
    assert row["slots_per_second"] == pytest.approx(64 * 20 / row["seconds"])
    assert row["seconds"] >= row["set_up"] + row["loop"] + row["results"]


def test_a_policy_that_cannot_run_has_a_reason() -> None:
    @ib.register(name="word")
    class Word:
        def init(setup):  # type: ignore[no-untyped-def]
            return ("word",)

        def select(setup, state, slot, picks):  # type: ignore[no-untyped-def]
            return 0

        def update(setup, state, slot, feedback):  # type: ignore[no-untyped-def]
            pass

    (row, other) = bench_on_gpu([policy("word"), policy("mp-random")], replications=2, slots=3)["policies"]
    assert row["reason"].startswith("policy word: cannot run on a GPU:")
    assert other["slots_per_second"] > 0


def test_an_experiment_file_may_name_the_device(
    capsys: pytest.CaptureFixture[str], tmp_path: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # type: ignore[arg-type]
    size = ("--horizon", 20, "--replications", 2, "--policy", "mp-random")
    first = command(capsys, "run", "S1", *size, "--device", "cuda", "--out", "out", "--json")
    assert json.loads(command(capsys, "run", "out/experiment.toml", "--out", "out", "--json")) == json.loads(first)
    assert "mp-random" in command(capsys, "compare", "S1", *size, "--device", "cuda", "--out", "ranked")
