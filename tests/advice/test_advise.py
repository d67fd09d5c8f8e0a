"""Recommendations: the rule, the candidates, and the files that are written."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import idleband as ib
from idleband.advice.advise import PREFERRED, PolicyReplay, _choice, candidates, serve_command
from idleband.advice.text import advice_text
from idleband.cli.parser import build_parser
from idleband.simulation.statistics import Difference, Interval
from tests.conftest import ROOT

FAST = ["mp-random", "mp-ucb"]


def make_trace(T: int = 600) -> ib.Trace:
    rng = np.random.Generator(np.random.PCG64(5))
    busy = rng.random((T, 5)) < np.linspace(0.05, 0.8, 5)
    return ib.Trace.from_arrays(busy=busy, channel_names=[f"{868 + k}.1 MHz" for k in range(5)], source="roof")


def replayed(label: str, share: float, low: float | None) -> PolicyReplay:
    """What a policy earned; `low` is the lower end of the interval of its distance to the best policy."""
    behind = None
    if low is not None:
        behind = Difference.of(Interval(low + 0.1, low, low + 0.2, 5), "best", label, "reward", "per slot")
    return PolicyReplay(label, share, share, 0.0, behind, 1.0)


@pytest.mark.parametrize(
    ("replays", "recommended"),
    [
        ([("mp-ucb", 0.9, None), (PREFERRED, 0.8, 0.01)], "mp-ucb"),  # clearly behind
        ([("mp-ucb", 900.0, None), (PREFERRED, 899.0, 0.01)], PREFERRED),  # by less than 0.1%
        ([("mp-ucb", 0.9, None), (PREFERRED, 0.8, -0.01)], PREFERRED),
        ([(PREFERRED, 0.9, None), ("mp-ucb", 0.8, 0.01)], PREFERRED),
        ([("mp-ucb", 0.9, None), ("mp-random", 0.8, -0.01)], "mp-ucb"),  # not replayed
    ],
)
def test_mp_adaptive_is_recommended_unless_clearly_behind(
    replays: list[tuple[str, float, float | None]], recommended: str
) -> None:
    label, reason = _choice([replayed(*one) for one in replays])
    assert label == recommended
    assert "the genie's" in reason


def test_candidates_know_no_more_than_a_base_station() -> None:
    names = {one.policy.name for one in candidates()}
    assert {"mp-ucb", "mp-belief", "rca-m"} <= names
    assert not names & {"genie", "whittle", "oracle-belief", "mp-lucb", "mp-nucb"}


def test_advice_for_policies_with_contexts_and_of_users(tmp_path: Path) -> None:
    trace = make_trace(60)
    with pytest.raises(ib.InputError, match="mp-lucb: uses contexts, which the trace does not have"):
        ib.advise(trace, users=2, policies=["mp-lucb"])
    contexts = np.random.default_rng(0).random((60, 5, 3))
    observed = ib.Trace.from_arrays(busy=trace.busy, contexts=contexts)
    assert " --dimension 3" in serve_command("mp-lucb", observed, 2)
    assert " --dimension" not in serve_command("mp-ucb", observed, 2)
    file = f"{ROOT}/examples/epsilon_greedy.py:EpsilonGreedy"
    advice = ib.advise(trace, users=2, policies=[file], replications=1)
    assert f"--policy {file} " in advice.command


def test_a_trace_of_two_slots_gives_valid_json(tmp_path: Path) -> None:
    trace = ib.Trace.from_arrays(busy=[[0, 1], [1, 0]])
    advice = ib.advise(trace, users=1, policies=FAST, replications=1, out=tmp_path)
    stored = json.loads((tmp_path / "advice.json").read_text(), parse_constant=pytest.fail)
    assert stored["policies"][1]["behind"]["interval"] is None
    assert advice.fit is None


def test_advice_agrees_with_the_replay_and_is_written(tmp_path: Path) -> None:
    trace = make_trace()
    trace.save(tmp_path / "band.parquet")
    advice = ib.advise(tmp_path / "band.parquet", users=2, policies=FAST, replications=2, out=tmp_path / "out")
    assert advice.recommended == "mp-ucb"
    study = ib.compare(ib.scenario(trace, users=2), FAST, horizon=trace.T, replications=2)
    assert advice.replay("mp-ucb").reward == pytest.approx(study["mp-ucb"].reward[:, -1].mean() / trace.T)
    behind = advice.replay("mp-random").behind
    assert behind is not None
    assert behind.mean == pytest.approx(study.difference("mp-ucb", "mp-random", per_slot=True).mean)
    # The two best channels, in hindsight, as a share of what is possible.
    best = np.where(trace.idle, 1.0, 0.1).mean(axis=0)
    genie = np.sort(np.where(trace.idle, 1.0, 0.1), axis=1)[:, -2:].sum()
    share = np.sort(best)[-2:].sum() * trace.T / genie
    assert advice.references["best fixed set in hindsight"] == pytest.approx(share)
    written = json.loads((tmp_path / "out" / "advice.json").read_text())
    assert written["recommended"] == "mp-ucb"
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Recommended policy for band: mp-ucb" in page
    assert "roof" in page
    assert not re.findall(r'(?:src|href)="https?:', page)  # no external resources
    assert ib.scenario(tmp_path / "out" / "scenario.toml").K == 5
    text = advice_text(advice)
    assert "one recording" in text
    long = [line for line in text.splitlines() if len(line) > 80 and "idleband serve" not in line]
    assert not long


def test_advice_without_intervals_is_valid_json_and_text(tmp_path: Path) -> None:
    """Four slots are four blocks, too few for intervals; a study that was run before has no processor times."""
    for _ in range(2):
        advice = ib.advise(make_trace(4), users=2, policies=FAST, replications=1, out=tmp_path)
    (_, other) = advice.replays
    assert other.interval is None
    written = json.loads((tmp_path / "advice.json").read_text(), parse_constant=pytest.fail)
    assert written["policies"][1]["behind"]["interval"] is None
    for text in (advice_text(advice), (tmp_path / "report.html").read_text()):
        assert not re.findall(r"\b(nan|inf)\b", text)


def test_serve_command_is_accepted_by_the_parser() -> None:
    words = shlex.split(serve_command("mp-ucb L=0.5", make_trace(), 2))
    options = build_parser().parse_args(words[1:])
    assert (options.policy, options.channels, options.users) == ("mp-ucb:L=0.5", "5", "2")
    assert options.set == ["channel_names=868.1 MHz,869.1 MHz,870.1 MHz,871.1 MHz,872.1 MHz"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"users": 6}, "users = 6: must be a whole number from 1 to 5"),
        ({"users": 2, "policies": ["genie"]}, "policy genie: knows more than a base station does"),
        ({"users": 2, "policies": ["mp-ubc"]}, "did you mean 'mp-ucb'"),
    ],
)
def test_invalid_arguments_are_refused(arguments: dict[str, object], line: str) -> None:
    with pytest.raises(ib.InputError, match=re.escape(line)):
        ib.advise(make_trace(60), **arguments)  # type: ignore[arg-type]
