"""Channel names: accepted wherever a channel is given, shown in explanations and the status."""

import json
from pathlib import Path
from typing import Any

import pytest

import idleband as ib
from idleband.allocator.settings import Settings
from tests.allocator.helpers import loaded, state_of

NAMES = ("ch1", "ch2", "ch3", "ch4")


def named(**more: Any) -> ib.Allocator:
    return ib.Allocator("mp-ucb", **{"channels": 4, "users": 2, "channel_names": NAMES, **more})


def test_channels_are_vacated_and_restored_by_name_or_index() -> None:
    allocator = named()
    assert allocator.decide().channels == (0, 1)
    assert allocator.vacate(["ch2", 3]) == (1,)
    assert allocator.vacated == (1, 3)
    allocator.restore([1, "ch4"])
    assert allocator.vacated == ()


@pytest.mark.parametrize("call", ["vacate", "restore"])
@pytest.mark.parametrize("channels", [["ch5"], ["ch1", 0], ["4"], [4], "ch1", [None]])
def test_unknown_or_repeated_channels_are_refused(call: str, channels: Any) -> None:
    allocator = named()
    before = state_of(allocator)
    with pytest.raises(ib.InputError, match=r"^channels = "):
        getattr(allocator, call)(channels)
    assert state_of(allocator) == before


def test_an_incumbent_is_given_by_name() -> None:
    assert named().decide(incumbent=["ch4", 0]).channels == (3, 0)


def test_reports_are_keyed_by_name_index_or_index_as_text() -> None:
    by_name, by_index, by_text = named(), named(), named()
    for allocator, first, second in ((by_name, "ch1", "ch2"), (by_index, 0, 1), (by_text, "0", "1")):
        decision = allocator.decide()
        receipt = allocator.report(decision.request_id, {first: 1.0, second: 0.1}, {second: 0})
        assert receipt == ib.Receipt((0, 1))
    assert state_of(by_name) == state_of(by_index) == state_of(by_text)


def test_a_report_for_a_channel_that_was_not_assigned_lists_the_assigned_names() -> None:
    allocator = named()
    allocator.decide()
    with pytest.raises(ib.InputError, match=r"^rewards: channel 'ch3' was not assigned in 1; assigned: ch1, ch2$"):
        allocator.report(1, {"ch3": 1.0})
    with pytest.raises(ib.InputError, match=r"^rewards: channel 'ch1' is given twice$"):
        allocator.report(1, {0: 1.0, "ch1": 1.0})
    with pytest.raises(ib.InputError, match=r"^rewards: 5 for channel ch2: must be a number from 0.1 to 1$"):
        allocator.report(1, {1: 5.0})


def test_explanations_and_status_show_names() -> None:
    allocator = named()
    explained = allocator.explain(allocator.decide().request_id)
    assert str(explained) == (
        "Slot 1: channels ch1, ch2 of 4 were selected by mp-ucb. Channels ch1, ch2 have not been tried yet, so they"
        " come first."
    )
    assert [terms.name for terms in explained.channels] == list(NAMES)
    assert [one["name"] for one in allocator.status()["channel"]] == list(NAMES)
    without = ib.Allocator("mp-ucb", channels=2, users=1)
    assert [one["name"] for one in without.status()["channel"]] == [None, None]


def test_names_are_saved(tmp_path: Path) -> None:
    allocator = named()
    allocator.save(tmp_path / "saved")
    assert ib.Allocator.load(tmp_path / "saved").settings.channel_names == NAMES
    assert loaded(state_of(allocator)).vacate(["ch3"]) == ()
    data = json.loads(json.dumps(allocator.settings.to_dict()))
    assert Settings.restored(data) == allocator.settings


def test_names_may_be_given_with_a_scenario_without_names() -> None:
    scenario = ib.scenario(p01=[0.5] * 4, p10=[0.5] * 4, users=2, perturbation="none")
    assert ib.Allocator("mp-ucb", scenario=scenario, channel_names=NAMES).vacate(["ch1"]) == ()


def test_names_come_from_the_scenario_if_it_has_names() -> None:
    scenario = ib.scenario(p01=[0.5] * 4, p10=[0.5] * 4, users=2, perturbation="none", channel_names=NAMES)
    allocator = ib.Allocator("mp-ucb", scenario=scenario)
    assert allocator.settings.channel_names == NAMES
    assert loaded(state_of(allocator)).settings == allocator.settings
    with pytest.raises(ib.InputError, match=r"^channel_names = .*: must be left out; the scenario defines them"):
        ib.Allocator("mp-ucb", scenario=scenario, channel_names=["a", "b", "c", "d"])
