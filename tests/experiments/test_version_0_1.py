"""A results folder of version 0.1 can be loaded and drawn."""

import shutil
from pathlib import Path

import numpy as np
import pandas
import pytest

import idleband as ib
from idleband.cli import main
from idleband.experiments.spec import read_experiment

STORED = Path(__file__).parent.parent / "data/version-0.1/results"


def test_load_gives_the_stored_results() -> None:
    study = ib.load(STORED)
    table = pandas.read_parquet(STORED / "results.parquet")
    plays = pandas.read_parquet(STORED / "plays.parquet")
    assert study.labels == ["mp-ucb", "mp-lucb beta=0.5", "epsilon-greedy"]
    assert study.labels == list(table.label.unique())
    assert (study.scenario.name, study.seed, study.complete) == ("S1-quadratic", 0, True)
    for result in study.results:
        rows = table[table.label == result.label]
        assert (result.horizon, result.replications) == (200, 2)
        for name, curve in result.curves.items():
            assert curve.ravel().tolist() == rows[name].astype(float).tolist()
        assert result.plays.ravel().tolist() == plays[plays.label == result.label].plays.tolist()
        assert result.plays.sum(axis=1).tolist() == [200 * 5] * 2
    assert study["mp-lucb beta=0.5"].parameters["beta"] == 0.5


def test_simulation_gives_the_stored_rewards_and_plays() -> None:
    stored = ib.load(STORED)
    for label, policy in (("mp-ucb", "mp-ucb"), ("mp-lucb beta=0.5", ib.policy("mp-lucb", beta=0.5))):
        result = ib.simulate(STORED / "experiment.toml", policy, horizon=200, replications=2, seed=0)
        assert np.array_equal(result.reward, stored[label].reward)
        assert np.array_equal(result.plays, stored[label].plays)


def test_plot_command_draws_the_stored_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = shutil.copytree(STORED, tmp_path / "results")
    with pytest.raises(SystemExit) as ended:
        main(["plot", str(folder)])
    assert ended.value.code == 0
    assert ".png" in capsys.readouterr().out
    assert list(folder.glob("*.png"))


def test_another_experiment_is_not_mixed_into_the_folder(tmp_path: Path) -> None:
    folder = shutil.copytree(STORED, tmp_path / "results", ignore=shutil.ignore_patterns("policies"))
    text = (folder / "experiment.toml").read_text()
    (folder / "experiment.toml").write_text(text[: text.index("[[policy]]")] + '[[policy]]\nname = "mp-ucb"\n')
    assert read_experiment(folder / "experiment.toml").horizon == 200
    with pytest.raises(ib.InputError, match="holds another experiment"):
        ib.compare("S2", ["mp-ucb"], horizon=200, replications=2, out=folder)
