"""Scenarios: sources, changes of settings, round trips through dictionaries and files, and refusals."""

import copy
import math
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

import idleband as ib
from idleband.scenario.contexts import MAX_DIMENSION
from idleband.scenario.table import MAX_CHANNELS

TWO = {"p01": [0.1, 0.2], "p10": [0.3, 0.4]}
THREE_STATES = {
    "transition": [[[0.5, 0.5, 0.0], [0.25, 0.5, 0.25], [0.0, 0.5, 0.5]]] * 2,
    "rewards": [0.1, 0.5, 1.0],
    "reward": "additive",
    "users": 1,
}

# --- sources of scenarios --------------------------------------------------------------------------------------------


def test_every_source_gives_the_same_scenario(tmp_path: Path) -> None:
    table = {"name": "mine", **TWO, "users": 1, "perturbation": {"kind": "linear", "clear": 0.6}}
    path = tmp_path / "mine.toml"
    path.write_text(tomli_w.dumps({"scenario": table}))
    first = ib.scenario(table)
    for other in (ib.scenario(**table), ib.scenario(path), ib.scenario(str(path)), ib.scenario(first)):
        assert other == first
        assert hash(other) == hash(first)


def test_file_may_be_based_on_a_preset(tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text('[scenario]\nname = "mine"\nbase = "S1"\nusers = 3\n[scenario.context]\ndimension = 4\n')
    assert ib.scenario(path) == ib.scenario("S1", name="mine", users=3, context={"dimension": 4})


def test_keywords_change_single_settings() -> None:
    changes = {"users": 2, "sensing": "all", "feedback": "reward", "reward": "additive", "name": "other"}
    scenario = ib.scenario("S4", **changes)
    assert {key: getattr(scenario, key) for key in changes} == changes
    assert scenario.transition[0].tolist() == ib.scenario("S4").transition[0].tolist()
    again = ib.scenario(scenario, users=3)
    assert (again.users, again.sensing) == (3, "all")
    assert scenario != again
    assert scenario.users == 2  # the first is unchanged


def test_new_perturbation_settings_replace_the_old_ones() -> None:
    strict = ib.scenario("S1", perturbation={"clear": 0.9, "per_channel": True})
    model = ib.scenario(strict, perturbation={"theta_norm": 0.5}).perturbation
    assert (model.clear, model.theta_norm, model.per_channel) == (None, 0.5, False)
    assert ib.scenario(strict, perturbation="none").perturbation.kind == "none"
    assert ib.scenario(strict, context={"dimension": 4}).perturbation == strict.perturbation


def test_settings_may_be_numpy_arrays_and_numbers() -> None:
    scenario = ib.scenario(
        p01=np.array([0.1, 0.2]),
        p10=(np.float32(0.5), 1),
        users=np.int32(2),
        perturbation={"theta": np.zeros(8)},
        availability=np.array([[True, False], [True, True]]),
    )
    assert [P[1, 0] for P in scenario.transition] == [0.5, 1.0]
    assert scenario.availability == ((True, False), (True, True))
    assert ib.scenario(scenario.to_dict()) == scenario


def test_good_states_are_those_of_the_largest_reward_unless_given() -> None:
    assert [g.tolist() for g in ib.scenario(THREE_STATES).good] == [[False, False, True]] * 2
    tie = ib.scenario(THREE_STATES, rewards=[1.0, 0.5, 1.0])
    assert tie.good[0].tolist() == [True, False, True]
    marked = ib.scenario(THREE_STATES, good=[1, 2])
    assert marked.good[1].tolist() == [False, True, True]
    assert marked.good_shares.tolist() == pytest.approx([0.75, 0.75])
    each = ib.scenario(THREE_STATES, good=[[0], []])
    assert [g.tolist() for g in each.good] == [[True, False, False], [False, False, False]]


def test_channels_may_have_different_numbers_of_states() -> None:
    transition = [[[1.0]], [[0.5, 0.5], [0.5, 0.5]], THREE_STATES["transition"][0]]
    rewards = [[0.7], [0.2, 0.4], [0.1, 0.5, 1.0]]
    additive = ib.scenario(transition=transition, rewards=rewards, reward="additive", users=3)
    np.testing.assert_allclose(additive.mean_h, [0.7, 0.3, 0.525])
    np.testing.assert_allclose(additive.table_means, additive.mean_h)
    threshold = ib.scenario(transition=transition, good=[[0], [1], [2]], users=3)
    np.testing.assert_allclose(threshold.table_means, 0.1 + 0.9 * np.array([1, 0.5, 0.25]))
    for scenario in (additive, threshold):
        assert ib.scenario(scenario.to_dict()) == scenario


def test_threshold_reward_needs_good_states_only() -> None:
    scenario = ib.scenario(transition=THREE_STATES["transition"], good=[[2], [0, 1]], users=1)
    assert [row.tolist() for row in scenario.rewards] == [[0.1, 0.1, 1.0], [1.0, 1.0, 0.1]]
    same = {"rewards": [[0.1, 0.1, 1.0], [1.0, 1.0, 0.1]], "users": 1}
    assert ib.scenario(transition=THREE_STATES["transition"], **same) == scenario


@pytest.mark.parametrize(
    ("table", "channel"),
    [
        ({"p01": [0.1, 0.2], "p10": [0.3, 0.4], "rewards": [0, 5]}, "channel 0 = [0.0, 5.0]"),
        ({"p01": [0.1, 0.2], "p10": [0.3, 0.4], "rewards": [[0.1, 1], [1, 0.1]]}, "channel 1 = [1.0, 0.1]"),
        ({**THREE_STATES, "reward": "threshold"}, "channel 0 = [0.1, 0.5, 1.0]"),
        ({**THREE_STATES, "reward": "threshold", "good": [1, 2]}, "channel 0 = [0.1, 0.5, 1.0]"),
        ({"base": "S1", "rewards": [0, 5]}, "channel 0 (ch1) = [0.0, 5.0]"),
    ],
)
def test_rewards_that_the_threshold_reward_does_not_pay_are_refused(table: dict[str, Any], channel: str) -> None:
    assert refused({"users": 1, **table}) == (
        f"scenario.rewards, {channel}: the threshold reward pays 1 in good states and 0.1 in bad ones;"
        ' leave rewards out, or set reward = "additive", which pays state rewards'
    )


def test_state_rewards_of_the_additive_reward_are_paid() -> None:
    totals = [
        ib.simulate(
            ib.scenario(**TWO, users=1, reward="additive", rewards=rewards, perturbation="none"), "mp-random",
            horizon=100, replications=1,
        ).reward[0, -1]
        for rewards in ([0, 1], [0, 5])
    ]  # fmt: skip
    assert totals[1] == 5 * totals[0] > 0


def test_reward_kind_can_be_changed_with_rewards_left_out() -> None:
    additive = ib.scenario("S1", reward="additive")
    assert ib.scenario(additive, reward="threshold") == ib.scenario("S1")
    other = ib.scenario(additive, rewards=[0, 5])
    assert ib.scenario(other, reward="threshold", rewards=None) == ib.scenario("S1")


# --- channel names ---------------------------------------------------------------------------------------------------


def test_presets_name_their_channels_as_the_paper_does() -> None:
    for name in ("S1", "S2", "S3", "S4"):
        assert ib.scenario(name).channel_names == tuple(f"ch{k}" for k in range(1, 11))


def test_channel_names_from_every_source(tmp_path: Path) -> None:
    names = ["470 MHz", "478 MHz"]
    path = tmp_path / "mine.toml"
    path.write_text(tomli_w.dumps({"scenario": {**TWO, "users": 1, "channel_names": names}}))
    scenario = ib.scenario(**TWO, users=1, channel_names=names)
    assert scenario.channel_names == tuple(names)
    assert ib.scenario(path) == ib.scenario(scenario.to_dict()) == scenario
    assert scenario != ib.scenario(**TWO, users=1)
    assert scenario.identity() == ib.scenario(**TWO, users=1).identity()  # names do not determine results
    assert (scenario.channel("478 MHz"), scenario.channel(1), scenario.channel("1")) == (1, 1, 1)
    assert [scenario.channel_label(k) for k in ("478 MHz", 0)] == ["478 MHz", "470 MHz"]
    assert ib.scenario(**TWO, users=1).channel_label(1) == "1"


def test_names_stay_with_their_channels_when_other_settings_change() -> None:
    S1 = ib.scenario("S1")
    assert ib.scenario(S1, users=3).channel_names == S1.channel_names
    assert ib.scenario(S1, p01=[0.3] * 10).channel_names == S1.channel_names
    assert ib.scenario(S1, **TWO, users=1).channel_names == ()
    assert ib.scenario(S1, channel_names=None).channel_names == ()


def test_availability_rows_may_list_channel_names() -> None:
    by_name = ib.scenario("S1", availability=[["ch1", "ch10"], [1] * 10])
    assert by_name == ib.scenario("S1", availability=[[1, *[0] * 8, 1], [1] * 10])
    assert (
        "scenario.availability, row 0 = 'ch11': must be a channel index from 0 to 9, or one of the names ch1"
        in refused({"base": "S1", "availability": [["ch11"]]})
    )


def test_availability_none_means_all_channels() -> None:
    assert ib.scenario("S1", availability=None) == ib.scenario("S1")
    some = ib.scenario("S1", availability=[[1] * 9 + [0]])
    assert ib.scenario(some, availability=None) == ib.scenario("S1")


def test_messages_name_a_channel_by_index_and_name() -> None:
    table = {"p01": [0.1, 1.5], "p10": [0.1, 0.1], "users": 1, "channel_names": ["low", "high"]}
    assert refused(table) == f"scenario.p01, channel 1 (high) = 1.5: {PROBABILITY}"


def test_availability_of_all_channels_equals_none() -> None:
    assert ib.scenario("S1", availability=[[1] * 10, [True] * 10]) == ib.scenario("S1")


def test_best_channels_and_cost_of_a_selection() -> None:
    scenario = ib.scenario(p01=[0.2, 0.8, 0.5, 0.8], p10=[0.8, 0.2, 0.5, 0.2], users=2)
    assert scenario.best(scenario.table_means) == [1, 3]
    assert scenario.best(np.array([1.0, 1.0, 1.0, 1.0])) == [0, 1]  # lower indices first among equal means
    assert scenario.cost([1, 3]) == 0
    assert scenario.cost(["0", 2]) == pytest.approx(0.9 * (0.8 + 0.8 - 0.2 - 0.5))


# --- round trips -----------------------------------------------------------------------------------------------------

probability = st.floats(1e-100, 1)
state_reward = st.floats(-1e6, 1e6)


def exactly(entries: st.SearchStrategy[Any], n: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(entries, min_size=n, max_size=n)


@st.composite
def tables(draw: st.DrawFn) -> dict[str, Any]:
    """Draw scenarios of every kind as a user may write them, with and without optional settings."""
    K, d = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    table: dict[str, Any] = {"users": draw(st.integers(1, K))}
    if draw(st.booleans()):
        table["channel_names"] = [f"band {k}" for k in range(K)]
    additive = draw(st.booleans())
    if additive:
        table["reward"] = "additive"
    if draw(st.booleans()):
        table |= {"p01": draw(exactly(probability, K)), "p10": draw(exactly(probability, K))}
        if additive and draw(st.booleans()):
            table["rewards"] = draw(st.one_of(exactly(state_reward, 2), exactly(exactly(state_reward, 2), K)))
    else:
        states = draw(exactly(st.integers(1, 4), K))
        weights = [np.array(draw(exactly(st.floats(0.1, 1), S * S))).reshape(S, S) for S in states]
        table["transition"] = [(w / w.sum(axis=1, keepdims=True)).tolist() for w in weights]
        if additive:
            table["rewards"] = [draw(exactly(state_reward, S)) for S in states]
        if not additive or draw(st.booleans()):
            table["good"] = [draw(st.lists(st.integers(0, S - 1))) for S in states]
    theta = exactly(st.floats(-1e6, 1e6), d)
    longer = exactly(st.floats(-1e3, 1e3), d + 1)
    nonlinear = st.sampled_from(["quadratic", "cosine"])
    models = st.one_of(
        st.just("none"),
        st.just({"kind": "none"}),
        st.fixed_dictionaries({"clear": st.just(1.0)}, optional={"per_channel": st.booleans()}),
        st.fixed_dictionaries({"theta_norm": st.floats(0, 1)}, optional={"per_channel": st.booleans()}),
        st.fixed_dictionaries({"kind": st.just("linear"), "theta": st.one_of(theta, exactly(theta, K))}),
        st.fixed_dictionaries({"kind": nonlinear, "theta": st.one_of(longer, exactly(longer, K))}),
        st.fixed_dictionaries(
            {"kind": nonlinear}, optional={"clear": st.floats(0.01, 1), "per_channel": st.booleans()}
        ),
    )
    table["context"] = {"dimension": d}
    table["perturbation"] = draw(models)
    optional = {
        "name": st.from_regex(r"[A-Za-z0-9][A-Za-z0-9 _+-]{0,79}", fullmatch=True),
        "sensing": st.sampled_from(["played", "all"]),
        "feedback": st.sampled_from(["perturbation", "reward"]),
        "availability": st.lists(exactly(st.one_of(st.booleans(), st.integers(0, 1)), K), max_size=3),
    }
    return table | draw(st.fixed_dictionaries({}, optional=optional))


@given(tables())
def test_round_trip_through_a_dictionary(table: dict[str, Any]) -> None:
    scenario = ib.scenario(table)
    again = ib.scenario(scenario.to_dict())
    assert again == scenario
    assert hash(again) == hash(scenario)
    assert ib.scenario(scenario) == scenario
    for first, second in (
        (scenario.transition, again.transition),
        (scenario.rewards, again.rewards),
        (scenario.good, again.good),
    ):
        for a, b in zip(first, second, strict=True):
            np.testing.assert_array_equal(a, b)
    assert (again.perturbation, again.availability) == (scenario.perturbation, scenario.availability)


@given(table=tables())
def test_round_trip_through_a_file(table: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    scenario = ib.scenario(table)
    path = tmp_path_factory.getbasetemp() / "round-trip.toml"
    path.write_text(tomli_w.dumps({"scenario": scenario.to_dict()}))
    assert ib.scenario(path) == scenario


@pytest.mark.parametrize(
    "change",
    [
        {"name": "S2"},
        {"users": 4},
        {"sensing": "all"},
        {"feedback": "reward"},
        {"reward": "additive"},
        {"reward": "additive", "rewards": [0.1, 0.9]},
        {"channel_names": [f"band {k}" for k in range(10)]},
        {"p01": [0.3] * 10},
        {"p10": [0.3] * 10},
        {"context": {"dimension": 7}},
        {"perturbation": {"clear": 0.71}},
        {"perturbation": {"clear": 0.7, "per_channel": True}},
        {"perturbation": {"theta_norm": 0.7}},
        {"perturbation": {"kind": "quadratic", "clear": 0.7}},
        {"availability": [[1] * 9 + [0]]},
    ],
    ids=str,
)
def test_any_change_makes_a_different_scenario(change: dict[str, Any]) -> None:
    scenario = ib.scenario("S1")
    assert ib.scenario(scenario.to_dict() | change) != scenario


def test_equal_scenarios_have_equal_hashes() -> None:
    a, b = (ib.scenario("S1", perturbation={"theta": [zero] + [0.1] * 7}) for zero in (0.0, -0.0))
    assert a != b or hash(a) == hash(b)


# --- refusals --------------------------------------------------------------------------------------------------------


def refused(source: Any) -> str:
    """Return the message, one line, with which a scenario is refused."""
    with pytest.raises(ib.InputError) as caught:
        ib.scenario(source)
    message = str(caught.value)
    assert message.splitlines() == [message]
    return message


USERS = "must be a whole number from 1 to 10"
PROBABILITY = "must be a number above 0 and at most 1"
IRREDUCIBLE = "some state can never be reached from another; must be irreducible"
PERTURBATION = "scenario.perturbation"
ONE_OF = "give only one of clear, theta_norm and theta"


def s1(**changes: Any) -> dict[str, Any]:
    return {"base": "S1", **changes}


def two(**changes: Any) -> dict[str, Any]:
    return {**TWO, "users": 1, **changes}


def three(**changes: Any) -> dict[str, Any]:
    return {**THREE_STATES, **changes}


def model(**settings: Any) -> dict[str, Any]:
    return s1(perturbation=settings)


INVALID: list[tuple[dict[str, Any], str]] = [
    # names
    ({"base": "S11"}, "unknown scenario 'S11': did you mean 'S1'? known: S1, S2, S3, S4"),
    ({"base": "T9"}, "unknown scenario 'T9': known: S1, S2, S3, S4"),
    ({"base": 1}, "unknown scenario '1': "),
    (s1(user=3), "unknown key 'user' in scenario: did you mean 'users'? known: "),
    (s1(sensng="all"), "unknown key 'sensng' in scenario: did you mean 'sensing'?"),
    (s1(context={"dimensions": 8}), "unknown key 'dimensions' in scenario.context: did you mean 'dimension'?"),
    (model(claer=0.7), "unknown key 'claer' in scenario.perturbation: did you mean 'clear'?"),
    (s1(name="../S1"), "scenario.name = '../S1': must be 1 to 80 letters, digits, spaces or . _ + -"),
    (s1(name="a/../b"), "scenario.name = 'a/../b': must be"),
    (s1(name="a..b"), "scenario.name = 'a..b': must be 1 to 80 letters, digits, spaces or . _ + -, with no '..'"),
    (s1(name="a/b"), "scenario.name = 'a/b': must be"),
    (s1(name="a\nb"), r"scenario.name = 'a\nb': must be"),
    (s1(name="a\n"), r"scenario.name = 'a\n': must be"),
    (s1(name=""), "scenario.name = '': must be"),
    (s1(name="a" * 81), "must be 1 to 80 letters"),
    (s1(name=5), "scenario.name = 5: must be"),
    # users
    (s1(users=0), f"scenario.users = 0: {USERS}"),
    (s1(users=-1), f"scenario.users = -1: {USERS}"),
    (s1(users=11), f"scenario.users = 11: {USERS}"),
    (s1(users=2.5), f"scenario.users = 2.5: {USERS}"),
    (s1(users=True), f"scenario.users = True: {USERS}"),
    (s1(users=math.nan), f"scenario.users = nan: {USERS}"),
    (s1(users=math.inf), f"scenario.users = inf: {USERS}"),
    (s1(users=10**400), USERS),
    (s1(users="five"), USERS),
    (s1(users=None), f"scenario.users = None: {USERS}"),
    (s1(users=[5]), f"scenario.users = [5]: {USERS}"),
    (TWO, "scenario.users is missing: the number of channels to select in a slot, from 1 to 2"),
    # two-state channels
    (two(p01=[0.1, 1.2]), f"scenario.p01, channel 1 = 1.2: {PROBABILITY}"),
    (two(p10=[0.0, 0.1]), f"scenario.p10, channel 0 = 0.0: {PROBABILITY}"),
    (two(p10=[0.1, -0.1]), f"scenario.p10, channel 1 = -0.1: {PROBABILITY}"),
    (two(p01=[math.nan, 0.1]), f"scenario.p01, channel 0 = nan: {PROBABILITY}"),
    (two(p01=[math.inf, 0.1]), f"scenario.p01, channel 0 = inf: {PROBABILITY}"),
    (two(p01=["0.1", 0.1]), f"scenario.p01, channel 0 = '0.1': {PROBABILITY}"),
    (two(p01=[True, 0.1]), f"scenario.p01, channel 0 = True: {PROBABILITY}"),
    (two(p01=[0.0], p10=[0.0]), f"scenario.p01, channel 0 = 0.0: {PROBABILITY}"),
    (two(p10=[0.3]), "scenario.p10: has 1 entry, p01 has 2; one per channel in both"),
    (two(p01=[], p10=[]), f"scenario.p01: has 0 channels; must be from 1 to {MAX_CHANNELS}"),
    (two(p01=0.1), "scenario.p01 = 0.1: must be a list, one probability per channel"),
    ({"p01": [0.1], "users": 1}, "scenario.p10 is missing: give base, or p01 and p10, or one of transition"),
    ({}, "scenario.p01 is missing: give base, or p01 and p10, or one of transition"),
    (s1(p01=[0.1]), "scenario.p01: give either base or channels, not both"),
    (two(good=[1]), "scenario.good: only with transition"),
    (two(rewards=[0.1]), "scenario.rewards, channel 0: has 1 entry for 2 states"),
    (two(rewards=[0.1, math.nan]), "scenario.rewards, channel 0 = nan: must be a number of at least"),
    # channels of any number of states
    (three(p01=[0.1]), "scenario.transition: give either p01 and p10 or transition, not both"),
    (three(transition=[]), f"scenario.transition: has 0 channels; must be from 1 to {MAX_CHANNELS}"),
    (three(transition=[[[0.5, 0.5]]]), "scenario.transition, channel 0: must be a square matrix of 1 to 256"),
    (three(transition=[[[1.0], [0.5, 0.5]]]), "scenario.transition, channel 0: must be a square matrix"),
    (three(transition=[[]]), "scenario.transition, channel 0: must be a square matrix"),
    (three(transition=[[0.5, 0.5]]), "scenario.transition, channel 0 = 0.5: must be a list, rows of"),
    (
        three(transition=[[[1.0]], [[0.5, 0.5], [0.3, 0.6]]]),
        "scenario.transition, channel 1, state 1: probabilities add up to 0.9, must be 1",
    ),
    (three(transition=[[[1.5, -0.5], [0.5, 0.5]]]), "scenario.transition, channel 0 = 1.5: must be a number"),
    (three(transition=[[[1.0, 0.0], [0.5, 0.5]]]), f"scenario.transition, channel 0: {IRREDUCIBLE}"),
    (three(transition=[[[1.0]], np.eye(2)]), f"scenario.transition, channel 1: {IRREDUCIBLE}"),
    ({"transition": [[[1.0]]], "users": 1}, "scenario.good is missing: the good states"),
    (
        {"transition": [[[1.0]]], "reward": "additive", "users": 1},
        "scenario.rewards is missing: the reward of each state",
    ),
    (
        {"transition": [[[1.0]]], "good": [0], "reward": "additive", "users": 1},
        "scenario.rewards is missing: the reward of each state",
    ),
    # channel names
    (two(channel_names=["a"]), "scenario.channel_names: has 1 name for 2 channels"),
    (two(channel_names=["a", "a"]), "scenario.channel_names = 'a': is given twice; channel names must differ"),
    (two(channel_names=["a", "1"]), "scenario.channel_names = '1': must be 1 to 40 letters"),
    (two(channel_names="ab"), "scenario.channel_names = 'ab': must be a list of names, one per channel"),
    (three(rewards=[0.1, 1.0]), "scenario.rewards, channel 0: has 2 entries for 3 states"),
    (three(rewards=[[0.1, 0.5, 1.0], [1.0]]), "scenario.rewards, channel 1: has 1 entry for 3 states"),
    (three(rewards=[[0.1, 0.5, 1.0]]), "scenario.rewards: has 1 list for 2 channels"),
    (three(rewards=[]), "scenario.rewards, channel 0: has 0 entries for 3 states"),
    (three(rewards=1.0), "scenario.rewards = 1.0: must be a list"),
    (three(good=[3]), "scenario.good, channel 0 = 3: must be a whole number from 0 to 2"),
    (three(good=[[0], [-1]]), "scenario.good, channel 1 = -1: must be a whole number from 0 to 2"),
    (three(good=[[0]]), "scenario.good: has 1 list for 2 channels"),
    # choices
    (s1(sensing="al"), "scenario.sensing = 'al': must be one of played, all"),
    (s1(sensing=True), "scenario.sensing = True: must be one of played, all"),
    (s1(feedback="rewards"), "scenario.feedback = 'rewards': must be one of perturbation, reward"),
    (s1(reward="treshold"), "scenario.reward = 'treshold': must be one of threshold, additive"),
    # contexts
    (s1(context="unifrom"), "scenario.context.kind = 'unifrom': must be one of uniform"),
    (s1(context={"dimension": 0}), f"scenario.context.dimension = 0: must be a whole number from 1 to {MAX_DIMENSION}"),
    (s1(context={"dimension": 1e9}), "scenario.context.dimension = 1000000000.0: must be a whole number from 1"),
    (s1(context=8), "scenario.context = 8: must be a table of settings"),
    # perturbation
    (
        s1(perturbation="liner"),
        f"unknown {PERTURBATION}.kind 'liner': did you mean 'linear'? known: none, linear, quadratic, cosine",
    ),
    (s1(perturbation=0.7), f"{PERTURBATION} = 0.7: must be a table of settings"),
    (model(theta=[0.1] * 7), f"{PERTURBATION}.theta: has 7 entries; must be 8, the dimension"),
    (model(theta=[]), f"{PERTURBATION}.theta: has 0 entries; must be 8"),
    (model(theta=[[0.1] * 8] * 3), f"{PERTURBATION}.theta: has 3 lists; must be one, or one for each of 10 channels"),
    (model(theta=[[0.1] * 8] * 9 + [[0.1]]), f"{PERTURBATION}.theta: has 1 entry; must be 8"),
    (model(theta=[math.nan] * 8), f"{PERTURBATION}.theta = nan: must be a number of at least"),
    (model(theta=0.7), f"{PERTURBATION}.theta = 0.7: must be a list, of 8 numbers"),
    (model(clear=0.05), f"{PERTURBATION}.clear = 0.05: must be at least 0.07696, the smallest"),
    (model(clear=0.0), f"{PERTURBATION}.clear = 0.0: {PROBABILITY}"),
    (model(clear=1.01), f"{PERTURBATION}.clear = 1.01: {PROBABILITY}"),
    (model(clear=math.nan), f"{PERTURBATION}.clear = nan: {PROBABILITY}"),
    (
        s1(context={"dimension": 1}),
        f"{PERTURBATION}.clear = 0.7: must be at least 1, the smallest P(n < 1) that a theta of norm at most 1 can"
        " have in 1 dimension",
    ),
    (model(theta_norm=1.5), f"{PERTURBATION}.theta_norm = 1.5: must be a number of at least 0"),
    (model(theta_norm=-0.1), f"{PERTURBATION}.theta_norm = -0.1: must be a number of at least"),
    (model(clear=0.7, theta_norm=0.7), f"{PERTURBATION}.theta_norm: {ONE_OF}"),
    (model(theta=[0.1] * 8, clear=0.7), f"{PERTURBATION}.theta: {ONE_OF}"),
    (model(theta=[0.1] * 8, per_channel=True), f"{PERTURBATION}.per_channel: only for a drawn theta"),
    (model(per_channel=1), f"{PERTURBATION}.per_channel = 1: must be true or false"),
    (
        model(kind="quadratic", theta_norm=0.5),
        f"{PERTURBATION}.theta_norm: only for the linear model; the quadratic model takes clear",
    ),
    (model(kind="cosine", theta_norm=0.5, clear=0.7), f"{PERTURBATION}.theta_norm: only for the linear model"),
    (model(kind="cosine", theta=[0.1] * 9, clear=0.7), f"{PERTURBATION}.theta: {ONE_OF}"),
    (
        model(kind="quadratic", theta=[0.1] * 8),
        f"{PERTURBATION}.theta: has 8 entries; must be 9, for n = 0.5 + c z^2, z = a . (x",
    ),
    (
        model(kind="cosine", theta=[[0.1] * 8] * 10),
        f"{PERTURBATION}.theta: has 8 entries; must be 9, for n = m + 0.5 cos(6 z)",
    ),
    (
        model(kind="cosine", theta=[2e3] * 9),
        f"{PERTURBATION}.theta = 2000.0: must be a number of at least -1000 and at most 1000",
    ),
    (
        model(kind="quadratic", clear=0.001),
        f"{PERTURBATION}.clear = 0.001: must be at least 0.01, the smallest P(n < 1) that the",
    ),
    (model(kind="quadratic", per_channel=1), f"{PERTURBATION}.per_channel = 1: must be true or false"),
    (model(kind="none", clear=0.7), f"{PERTURBATION}.clear: not used where kind is none"),
    # availability
    (s1(availability=[[1] * 10, [1] * 9]), "scenario.availability, row 1: has 9 entries; must be 10, one per channel"),
    (s1(availability=[[1] * 9 + [2]]), "scenario.availability, row 0 = 2: must be 0 or 1"),
    (s1(availability=[["x"] * 10]), "scenario.availability, row 0 = 'x': must be a channel index from 0 to 9"),
    (s1(availability=[1] * 10), "scenario.availability, row 0 = 1: must be a list, of 0 and 1"),
    (s1(availability="all"), "scenario.availability = 'all': must be a list, rows of 0 and 1"),
]


@pytest.mark.parametrize(("table", "line"), INVALID, ids=[line[:60] for _, line in INVALID])
def test_invalid_scenarios_are_refused_in_one_line(table: dict[str, Any], line: str) -> None:
    assert line in refused(table)


@pytest.mark.parametrize(
    "table",
    [
        s1(users="1\n2"),
        {"base": "S1", "a\nb": 1},
        {"base": "S\n1"},
        s1(sensing=np.ones((3, 3))),
        s1(users=np.bool_(True)),
        s1(users=10**5000),
        s1(availability=np.ones((1, 10, 2))),
        two(p01=[10**400, 0.1]),
    ],
    ids=["users", "key", "base", "array", "bool", "digits", "deep", "huge"],
)
def test_unusual_values_are_refused_in_one_line(table: dict[str, Any]) -> None:
    refused(table)


@pytest.mark.parametrize(
    ("channels", "line"),
    [
        ([1, 2, 3, 4], "channels = [1, 2, 3, 4]: has 4 channels; S1 selects 5 in a slot"),
        ([1, 2, 3, 4, 4], "channels = [1, 2, 3, 4, 4]: each channel may be given once"),
        ([1, 2, 3, 4, 10], "channels = 10: must be a channel index from 0 to 9, or one of the names ch1, ch2"),
        ([1, 2, 3, 4, -1], "channels = -1: must be a channel index from 0 to 9"),
        (["ch1", "2", "3", "4", "x"], "channels = 'x': must be a channel index from 0 to 9"),
        (["ch1", 0, 1, 2, 3], "each channel may be given once"),
    ],
)
def test_cost_refuses_invalid_selections(channels: list[Any], line: str) -> None:
    with pytest.raises(ib.InputError, match=re.escape(line)):
        ib.scenario("S1").cost(channels)


def test_order_and_repetition_of_good_states_do_not_matter() -> None:
    assert ib.scenario(THREE_STATES, good=[2, 1, 1]) == ib.scenario(THREE_STATES, good=[1, 2])


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", "empty; an experiment file has [scenario], [experiment] and [[policy]]"),
        (b"# a remark\n", "empty; an experiment file has"),
        (b"[scenario]\nname = '\xff'\n", "not UTF-8 at byte 19"),
        (b"[scenario]\nusers = 1\nusers = 2\n", "not valid TOML: Cannot overwrite a value (at line 3"),
        (b"[scenario]\n[scenario]\n", "not valid TOML: Cannot declare"),
        (b"[scenario\n", "not valid TOML: "),
        (b"users = = 1", "not valid TOML: "),
        (b"[experiment]\nhorizon = 100\n", "scenario.p01 is missing"),
        (b"scenario = 'S1'\n", "scenario = 'S1': must be a table of settings"),
        (b"[scenario]\nbase = 'S1'\nusrs = 3\n", "unknown key 'usrs' in scenario: did you mean 'users'?"),
        (b"[scenario]\nbase = 'S1'\nname = '../../x'\n", "scenario.name = '../../x': must be"),
        (b"[scenario]\nbase = 'S1'\nusers = 0\n", f"scenario.users = 0: {USERS}"),
        (b"[scenario]\np01 = [nan]\np10 = [0.1]\nusers = 1\n", f"scenario.p01, channel 0 = nan: {PROBABILITY}"),
        (b"x = " + b"[" * 100_000, "not valid TOML: "),
        (b"[scenario]\nbase = 'S1'\nusers = " + b"9" * 5000, "not valid TOML: "),
    ],
    ids=lambda value: value[:40].decode("latin-1") if isinstance(value, bytes) else "",
)
def test_invalid_files_are_refused_in_one_line(content: bytes, line: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(content)
    assert line in refused(path)
    assert path.read_bytes() == content


def test_message_names_an_invalid_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xff")
    assert refused(path) == f"{path}: not UTF-8 at byte 0"


def test_missing_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "none.toml"
    assert refused(path) == refused(str(path)) == f"{path}: No such file or directory"
    assert refused(tmp_path) == f"{tmp_path}: Is a directory"


def test_path_with_a_null_character_is_refused() -> None:
    refused("a\0.toml")


def test_a_scenario_is_pickled_and_not_copied() -> None:
    """Also after runs, for which it keeps what they share."""
    trace = ib.Trace.from_arrays(busy=[[0, 1, 1], [1, 0, 1], [0, 0, 1], [1, 1, 0]])
    for scenario in (ib.scenario("S4"), ib.scenario(trace=trace, users=2)):
        before = ib.simulate(scenario, "mp-random", horizon=4, replications=1).reward
        assert copy.deepcopy(scenario) is scenario
        again = pickle.loads(pickle.dumps(scenario))
        assert again == scenario
        assert np.array_equal(ib.simulate(again, "mp-random", horizon=4, replications=1).reward, before)
