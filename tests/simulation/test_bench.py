"""The bench command at a small size, and the NumPy reference of the benchmarks against the package."""

import importlib.util
import json
from typing import Any

import numpy as np
import pytest

import idleband as ib
from idleband.cli import main
from idleband.experiments.spec import every_policy
from idleband.simulation import bench
from tests.conftest import ROOT


def test_bench_measures_the_bare_loop_and_every_policy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = bench.bench(every_policy(), slots=200, rounds=1)
    monkeypatch.setattr("idleband.simulation.bench.bench", lambda policies: small)
    with pytest.raises(SystemExit) as end:
        main(["bench", "--json"])
    assert end.value.code == 0
    data = json.loads(capsys.readouterr().out)
    assert data["scenario"] == {"name": "S1", "K": 10, "M": 5, "d": 8}
    loops = {row["loop"]: row for row in data["loops"]}
    assert set(loops) == {"bare loop"} | {name for name, p in ib.POLICIES.items() if p.source is None}
    for row in loops.values():
        assert row["slots_per_second"] == pytest.approx(1e6 / row["microseconds"])
        assert row["ratio_to_bare"] == pytest.approx(row["microseconds"] / loops["bare loop"]["microseconds"])
    with pytest.raises(SystemExit):
        main(["bench"])
    assert "bare loop" in capsys.readouterr().out


def reference() -> Any:
    """Import the NumPy reference of the benchmarks."""
    path = ROOT / "benchmarks/numpy_reference.py"
    spec = importlib.util.spec_from_file_location("numpy_reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["mp-ucb", "mp-lucb"])
@pytest.mark.parametrize("where", ["S1", "S4"])
def test_numpy_reference_selects_the_same_channels(name: str, where: str) -> None:
    scenario = ib.scenario(where)
    slots = ib.simulate(scenario, name, horizon=400, replications=1, seed=2, record="slots").slots
    assert slots is not None
    policy = reference().POLICIES[name](scenario.K, scenario.users, scenario.dimension)
    for t, slot in slots.groupby("t"):
        x = slot[[f"x{i}" for i in range(scenario.dimension)]].to_numpy()
        good, n = slot.good.to_numpy(), slot.perturbation.to_numpy()
        picks = policy.select(t, x)
        assert sorted(picks.tolist()) == np.flatnonzero(slot.picked).tolist(), t
        r = np.where(good[picks] - n[picks] > 0, 1.0, 0.1)
        policy.learn(picks, x, np.where(good[picks], 1.0, 0.1), r, n[picks])


def test_numpy_reference_has_the_same_mean_reward() -> None:
    """Its loop uses other random numbers: mean rewards agree within 5 standard errors of their difference."""
    theta = [0.117, 0.279, 0.112, 0.443, 0.308, 0.152, 0.182, 0.197]
    scenario = ib.scenario("S2", perturbation={"theta": theta})
    T, R = 2000, 6
    ours = ib.simulate(scenario, "mp-ucb", horizon=T, replications=R).reward[:, -1]
    module = reference()
    p01, p10 = (np.array(scenario.to_dict()[key]) for key in ("p01", "p10"))
    theirs = np.array([module.simulate(module.UCB(10, 5, 8), p01, p10, np.array(theta), T, seed) for seed in range(R)])
    error = np.sqrt((ours.var(ddof=1) + theirs.var(ddof=1)) / R)
    assert abs(ours.mean() - theirs.mean()) < 5 * error
