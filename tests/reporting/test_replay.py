"""Texts about replayed traces: what intervals and references are based on."""

import json
import math

import numpy as np
import pytest

import idleband as ib
from idleband.experiments.ranking import ranking
from idleband.reporting.card import card, card_text
from idleband.reporting.plots import regret_figure, reward_figure
from idleband.reporting.ranking import legend, ranking_csv, ranking_figure, ranking_json, ranking_text
from idleband.reporting.study import study_json, study_text

T, K = 400, 6


def make_scenario() -> ib.Scenario:
    rng = np.random.default_rng(4)
    share = np.where(np.arange(T)[:, None] < T // 2, np.linspace(0.1, 0.9, K), np.linspace(0.9, 0.1, K))
    names = [f"{700 + k}.00 MHz" for k in range(K)]
    trace = ib.Trace.from_arrays(busy=rng.random((T, K)) < share, channel_names=names, slot_s=0.5)
    return ib.scenario(trace, users=2, name="replay")


@pytest.fixture(scope="module")
def study() -> ib.Study:
    return ib.compare(make_scenario(), ["mp-random", "mp-ucb"], replications=3)


def test_ranking_of_a_replay_names_its_intervals_and_references(study: ib.Study) -> None:
    rows = ranking(study)
    text = f"{ranking_text(rows)}\n{legend(rows)}"
    assert "intervals: block bootstrap over 20 blocks of one recording" in text
    assert "gap closed" not in text
    assert "of bound" not in text
    assert max(map(len, text.split("\n"))) <= 80
    first = rows[0]
    genie = first.reward + first.regret_genie
    for name, value in (
        ("genie", genie),
        ("best fixed set per block", first.block_reference),
        ("best fixed set in hindsight", first.reward + first.regret_static),
    ):
        line = next(line for line in text.split("\n") if line.startswith(name + " "))
        assert line.split()[-2:] == [f"{value:.4f}", f"{value / genie:.1%}"]
    assert first.share_of_genie == pytest.approx(first.reward / genie)
    assert {row["interval"] for row in ranking_json(rows)} == {"block bootstrap"}
    assert ranking_csv(rows).split("\n")[0].endswith("block_reference,interval,blocks")
    simulated = ranking(ib.compare("S1", ["mp-random"], horizon=100, replications=2))
    assert (simulated[0].interval, simulated[0].blocks) == ("Student t", 0)
    assert math.isnan(simulated[0].block_reference)
    assert "of bound" in legend([*rows, *simulated])


def test_best_fixed_set_per_block_is_that_of_the_recorded_states(study: ib.Study) -> None:
    scenario = study.scenario
    assert scenario.recording is not None
    idle = scenario.recording.trace.idle.reshape(20, 20, K).mean(axis=1)
    best = np.sort(0.1 + 0.9 * idle, axis=1)[:, -2:].sum(axis=1)
    assert study["mp-ucb"].block_reference() == pytest.approx(best.mean())
    whole = scenario.table_means[scenario.best(scenario.table_means)].sum()
    assert study["mp-ucb"].block_reference() > whole
    with pytest.raises(ib.InputError, match="replays no trace"):
        ib.simulate("S1", "mp-random", horizon=10).block_reference()


def test_best_fixed_set_per_block_with_perturbation_rewards_and_remainder() -> None:
    scenario = make_scenario()
    assert scenario.recording is not None
    busy = scenario.recording.trace.busy
    disturbed = ib.scenario(scenario, perturbation={"kind": "linear", "theta": [0.2] * 8})
    clear = disturbed.probabilities_below(disturbed.theta(0, 0), 1.0)[0]
    idle = ~busy.reshape(20, 20, K)
    best = np.sort(0.1 + 0.9 * idle.mean(axis=1) * clear, axis=1)[:, -2:].sum(axis=1).mean()
    assert ib.simulate(disturbed, "mp-random", replications=1).block_reference() == pytest.approx(best)
    reward = np.random.default_rng(1).random((T, K)).astype(np.float32)
    paid = ib.Trace.from_arrays(busy=busy, reward=reward)
    additive = ib.scenario({"trace": {"file": paid, "block": 150}}, users=2, reward="additive", sensing_time=0.5)
    parts = [reward[:150], reward[150:]]
    best = sum(0.5 * np.sort(part.mean(axis=0, dtype=float))[-2:].sum() * len(part) for part in parts) / T
    assert ib.simulate(additive, "mp-random", replications=2).block_reference() == pytest.approx(best)


def test_table_of_a_replayed_study_names_its_intervals_and_references(study: ib.Study) -> None:
    text = study_text(study)
    assert "(block bootstrap over 20 blocks of one recording)" in " ".join(text.split())
    assert "best fixed set per block" in text
    assert max(map(len, text.split("\n"))) <= 80
    assert [row["interval"] for row in study_json(study)] == ["block bootstrap"] * 2
    few = ib.compare(study.scenario, ["mp-ucb"], replications=1, horizon=20)
    assert "(1 block of one recording, no interval)" in " ".join(study_text(few).split())
    assert study_json(few)[0]["reward_pm"] is None
    assert "intervals: none, 1 block of one recording" in ranking_text(ranking(few))


def test_figures_of_a_replay_have_bands_of_the_bootstrap(study: ib.Study) -> None:
    figure = reward_figure(study.scenario, study.results)
    top = figure.axes[0]
    assert "block bootstrap over 20 blocks of one recording" in top.get_title()
    band = top.collections[0].get_paths()[0].vertices
    found = study.interval("mp-ucb", per_slot=True)
    ends = band[band[:, 0] == T][:, 1]
    assert (ends.min(), ends.max()) == (pytest.approx(found.low), pytest.approx(found.high))
    assert "block bootstrap" in regret_figure(study.scenario, study.results).axes[0].get_title()
    assert ranking_figure([ranking(study)]).axes


def test_card_of_a_replay() -> None:
    scenario = make_scenario()
    data = card(scenario)
    json.dumps(data)
    text = card_text(data)
    assert "in memory: 400 slots of 0.5 s (3.33 min), replayed in 20 blocks of 20 slots" in " ".join(text.split())
    assert "long-run shares of transitions" in text
    assert "best 2 over the whole trace" in text
    assert "P(n<1)" not in text
    assert max(map(len, text.split("\n"))) <= 80
    assert data["long_run_p01"] == pytest.approx([P[0, 1] for P in scenario.transition])


def test_card_names_what_is_not_a_plain_markov_chain() -> None:
    chains = {"p01": [0.2] * 3, "p10": [0.1] * 3, "users": 1}
    scenario = ib.scenario(
        **chains,
        dwell={"good": {"kind": "weibull", "shape": 0.5}, "bad": {"kind": "geometric"}},
        shocks={"start": 0.01, "end": 0.1, "channels": [0, 2]},
        correlation={"common": 0.2},
        sensing_errors={"missed": 0.1, "false_alarm": [0.0, 0.1, 0.2]},
        sensing_time=0.05,
        switching_cost=0.3,
        context={"kind": "ar1", "correlation": 0.5},
        channel_names=["a", "b", "c"],
    )
    text = " ".join(card_text(card(scenario)).split())
    for part in (
        "dwell times good weibull, mean 10 slots; bad geometric, mean 5 slots",
        "shocks begin with probability 0.01 per slot, end with 0.1; each hits one of a, c with probability 1",
        "correlation of draws, 0.2 with all channels",
        "sensing errors busy observed as idle 0.1, idle as busy 0 to 0.2",
        "sensing takes 0.05 of a slot per channel and user; 0.3 for each channel that was not selected",
        "contexts ar1, 8 dimensions, correlation 0.5 from slot to slot, uniform margin",
        "long-run shares of transitions",
    ):
        assert part in text
    regimes = {"p01": [[0.1, 0.2], [0.3, 0.4]], "p10": [[0.1, 0.2], [0.3, 0.4]]}
    assert "2 in turn; the next one begins in slot 50, 1,000" in card_text(
        card(ib.scenario(users=1, regimes={**regimes, "at": [50, 1000]}))
    )
    at_random = ib.scenario(users=1, regimes={**regimes, "transition": [[0.9, 0.1], [0.1, 0.9]]})
    assert "2, changing at random for all channels together" in card_text(card(at_random))
