"""State files: a loaded allocator continues bit for bit, and errors are one line that begins with the path."""

import io
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import idleband as ib
from idleband.allocator import serialization
from tests.allocator.helpers import contexts, differ, loaded, state_of
from tests.own_policy import MINE

SIZE: dict[str, Any] = {"channels": 4, "users": 2, "dimension": 2}


def used(policy: str = "mp-lucb", slots: int = 12, **more: Any) -> ib.Allocator:
    """Return an allocator after named decisions, skipped slots, incumbents, partial reports and a vacated channel."""
    allocator = ib.Allocator(policy, **{**SIZE, **more})
    rng = np.random.default_rng(0)
    for t in range(slots):
        decision = allocator.decide(
            contexts(rng, allocator), None if t % 3 else 1, rng.random(4) < 0.8, [None, 1, None, 0],
            request_id=f"my {t}" if t % 4 == 1 else None, slot=allocator.slot + 1 + t % 2,
            incumbent=[3, 0] if t % 5 == 4 else None,
        )  # fmt: skip
        if t % 3 < 2:
            allocator.report(decision.request_id, {k: rng.choice([0.1, 1.0]) for k in decision.channels[: 1 + t % 2]})
        if t == 5:
            allocator.vacate([2])
    return allocator


def go_on(allocator: ib.Allocator) -> list[ib.Decision]:
    rng = np.random.default_rng(1)
    decisions = []
    for old in list(allocator._core.records.values())[-3:]:  # report what was not reported before
        rewards = {k: 1.0 for i, k in enumerate(old.decision.channels) if np.isnan(old.feedback[0, i])}
        allocator.report(old.decision.request_id, rewards)
    for _ in range(20):
        decisions.append(allocator.decide(contexts(rng, allocator)))
        allocator.report(decisions[-1].request_id, rng.choice([0.1, 1.0], len(decisions[-1].channels)))
    return decisions


@pytest.mark.parametrize(
    "more",
    [{}, {"policy": "mp-random"}, {"policy": "rca-m", "incumbent": "mp-random"}, {"collision_limit": 0.6}],
    ids=str,
)
def test_a_loaded_allocator_continues_bit_for_bit(tmp_path: Path, more: dict[str, Any]) -> None:
    path = tmp_path / "new" / "here.idleband"
    allocator = used(**more)
    allocator.save(path)
    again = ib.Allocator.load(path)
    assert state_of(again) == path.read_bytes() == state_of(allocator)
    assert again.status() == allocator.status()
    for record in allocator._core.records.values():
        assert (
            again.explain(record.decision.request_id).to_dict()
            == allocator.explain(record.decision.request_id).to_dict()
        )
    assert go_on(again) == go_on(allocator)
    assert not differ(again, allocator)
    assert state_of(again) == state_of(allocator)


def test_an_unused_allocator_is_saved_and_loaded(tmp_path: Path) -> None:
    allocator = ib.Allocator("mp-ucb", **SIZE)
    allocator.save(tmp_path / "a")
    assert ib.Allocator.load(tmp_path / "a").decide(None) == allocator.decide(None)


def test_an_allocator_with_a_scenario_is_saved_and_loaded(tmp_path: Path) -> None:
    """The scenario defines channels, users and rewards."""
    allocator = ib.Allocator("mp-lucb", scenario=ib.scenario("S4", users=3, feedback="reward"), seed=3, replication=1)
    rng = np.random.default_rng(0)
    allocator.report(allocator.decide(contexts(rng, allocator)).request_id, [1.0, 0.1, 1.0])
    allocator.save(tmp_path / "a")
    again = ib.Allocator.load(tmp_path / "a")
    assert again.settings.to_dict() == allocator.settings.to_dict()
    for _ in range(10):
        x = contexts(rng, allocator)
        assert again.decide(x) == allocator.decide(x)


def test_saving_replaces_an_earlier_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    used().save(path)
    used("mp-ucb").save(path)
    assert ib.Allocator.load(path).settings.policy == "mp-ucb"
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


# --- damaged and other files -----------------------------------------------------------------------------------------


def repacked(data: bytes, change: Any) -> bytes:
    """Return a snapshot whose header and arrays were modified by `change`."""
    with np.load(io.BytesIO(data)) as stored:
        arrays = {name: stored[name] for name in stored.files}
    head = json.loads(bytes(arrays.pop("header")))
    change(head, arrays)
    arrays["header"] = np.frombuffer(json.dumps(head).encode(), np.uint8)
    room = io.BytesIO()
    np.savez(room, **arrays)
    return room.getvalue()


def refused(data: bytes) -> str:
    with pytest.raises(ib.InputError) as caught:
        loaded(data, "some/file")
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("some/file: "), message
    return message


def test_a_truncated_file_is_refused() -> None:
    data = state_of(used())
    for length in sorted({0, 1, 2, 10, len(data) - 1, len(data) - 2, *range(0, len(data), 499)}):
        refused(data[:length])


def test_a_file_with_changed_bytes_is_refused_or_read() -> None:
    """Contents have checksums; the directory of the archive has none, and one byte in three of it is changed."""
    data = state_of(used("mp-ucb", slots=3))
    rng = np.random.default_rng(0)
    directory = data.index(b"PK\x01\x02")  # no checksums from here on
    places = [*rng.integers(0, directory, 200).tolist(), *range(directory, len(data), 3)]
    sound = 0
    for place in places:
        changed = bytearray(data)
        changed[place] ^= int(rng.integers(1, 256))
        try:
            loaded(bytes(changed), "some/file")
            sound += 1
        except ib.InputError:
            refused(bytes(changed))
    assert sound < len(places) / 2


def test_other_files_are_refused_with_their_path(tmp_path: Path) -> None:
    other = io.BytesIO()
    np.savez(other, a=np.zeros(3))
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("header.npy", "no array")
    lone = io.BytesIO()
    np.save(lone, np.zeros(3))
    for data in (b"", b"PK", b"hello", bytes(1000), other.getvalue(), archive.getvalue(), lone.getvalue()):
        refused(data)
    with pytest.raises(ib.InputError, match=f"^{tmp_path}/none: No such file"):
        ib.Allocator.load(tmp_path / "none")
    with pytest.raises(ib.InputError, match=f"^{tmp_path}: Is a directory"):
        ib.Allocator.load(tmp_path)
    (tmp_path / "damaged").write_bytes(b"PK")
    with pytest.raises(ib.InputError, match=f"^{tmp_path}/damaged: "):
        ib.Allocator.load(tmp_path / "damaged")
    with pytest.raises(ib.StorageError, match="cannot be written"):
        used().save(tmp_path / "damaged" / "below")


class Harmful:
    """An object whose pickle calls a function when it is loaded."""

    def __reduce__(self) -> Any:
        return (pytest.fail, ("a pickle was loaded",))


def test_a_pickle_is_not_loaded() -> None:
    data = state_of(used())
    room = io.BytesIO()
    np.save(room, np.array([Harmful()], dtype=object), allow_pickle=True)
    for name in ("header", "policy.state.theta", "vacated"):
        replaced = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(replaced, "w") as new:
            for item in old.namelist():
                new.writestr(item, room.getvalue() if item == f"{name}.npy" else old.read(item))
        assert "was not written by idleband" in refused(replaced.getvalue())
    refused(pickle.dumps(Harmful()))


def test_an_unknown_format_is_refused() -> None:
    def later(head: Any, arrays: Any) -> None:
        head["format"] = serialization.FORMAT + 1

    data = state_of(used())
    assert refused(repacked(data, later)) == "some/file: has format 3; this version reads 1 and 2"
    assert state_of(loaded(repacked(data, lambda head, arrays: None), "x")) == data


def setting(*path: Any) -> Any:
    """Return a change that sets the header entry at a path to a value."""

    def change(head: Any, arrays: Any) -> None:
        *way, last, value = path
        for key in way:
            head = head[key]
        head[last] = value

    return change


def array(name: str, value: Any) -> Any:
    def change(head: Any, arrays: Any) -> None:
        arrays[name] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda head, arrays: head.pop("settings"),
        lambda head, arrays: head.pop("slot"),
        lambda head, arrays: head.pop("counts"),
        lambda head, arrays: head["counts"].pop("late"),
        lambda head, arrays: head.pop("format"),
        lambda head, arrays: arrays.pop("vacated"),
        lambda head, arrays: arrays.pop("policy.state.theta"),
        lambda head, arrays: arrays.pop("feedback"),
        lambda head, arrays: head["records"].append(5),
        lambda head, arrays: head["records"].append("x"),
        lambda head, arrays: head["records"].append({}),
        setting("settings", 5),
        setting("settings", "policy", "mp-ubc"),
        setting("settings", "channels", 5),
        setting("settings", "channels", 10**9),
        setting("settings", "dimension", 3),
        setting("settings", "patience", -1),
        setting("settings", "parameters", "beta", -1.0),
        setting("settings", "parameters", 7),
        setting("settings", "source", "abc"),
        setting("settings", "colour", "red"),
        setting("slot", "x"),
        setting("slot", None),
        setting("slot", -1),
        setting("slot", 1),  # before the decisions
        setting("counts", [1]),
        setting("counts", "late", "x"),
        setting("records", 5),
        setting("records", 0, "channels", 7),
        setting("records", 0, "channels", [77]),
        setting("records", 0, "channels", [0, 1]),  # the arrays have feedback for one channel only
        setting("records", 0, "channels", [-1]),
        setting("records", 0, "channels", [0, 1, 2, 3]),
        setting("records", 0, "channels", ["a"]),
        setting("records", 1, "channels", [1, 1]),
        setting("records", 0, "proposed", [99]),
        setting("records", 0, "users", "x"),
        setting("records", 0, "users", 99),
        setting("records", 0, "incumbent", [99]),
        setting("records", 0, "slot", "x"),
        setting("records", 0, "by", "magic"),
        setting("records", 0, "request_id", [1]),
        setting("records", 0, "request_id", None),
        array("policy.state.theta", np.zeros((4, 3))),
        array("policy.state.theta", np.zeros((4, 2), np.float32)),
        array("policy.state.theta", np.array("theta")),
        array("vacated", np.zeros(4)),
        array("vacated", np.zeros(400, np.bool_)),
        array("feedback", np.zeros((3, 1))),
        array("feedback", np.zeros((2, 50))),
        array("feedback", np.zeros(3)),
        array("feedback", np.zeros((3, 50), np.int64)),
        array("request.contexts", np.zeros((1, 4, 2))),
        array("request.contexts", np.zeros((12, 4, 9))),
        array("request.contexts", np.zeros((12, 4, 2), np.int8)),
        array("request.contexts", np.full((12, 4, 2), np.nan)),
        array("request.available", np.ones((12, 2), np.bool_)),
        array("request.available", np.ones((12, 4))),
        array("request.sensed", np.full((12, 4), 7)),
        array("record.allowed", np.ones((12, 1), np.bool_)),
        array("record.terms", np.zeros((12, 4, 2))),
        array("record.terms", np.full((12, 4, 6), 1e9)),
        array("record.perturbations", np.zeros(12)),
    ],
)  # fmt: skip
def test_an_archive_with_invalid_contents_is_refused(change: Any) -> None:
    """Compiled code does not check what it is given, so everything is checked before."""
    refused(repacked(state_of(used()), change))


@pytest.mark.parametrize("text", [b"\xff\xfe", b"", b"{", b"5", b"[]", b"null", b"[" * 100_000])
def test_an_unreadable_header_is_refused(text: bytes) -> None:
    room = io.BytesIO()
    np.savez(room, header=np.frombuffer(text, np.uint8))
    refused(room.getvalue())


def test_additional_arrays_in_a_file_are_ignored() -> None:
    data = state_of(used())
    assert state_of(loaded(repacked(data, array("more", np.zeros(3))), "x")) == data


# --- users' policies -------------------------------------------------------------------------------------------------


def test_a_user_policy_is_loaded_unless_its_file_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, path = tmp_path / "mine.py", tmp_path / "saved"
    source.write_text(MINE)
    monkeypatch.chdir(tmp_path)
    allocator = ib.Allocator("mine.py:mine", **SIZE, first=1)
    allocator.decide(np.zeros((4, 2)))
    allocator.save(path)
    monkeypatch.chdir("/")  # the path of the policy is absolute
    again = ib.Allocator.load(path)
    assert again.decide(np.zeros((4, 2))) == allocator.decide(np.zeros((4, 2)))
    source.write_text(MINE + "# changed\n")
    with pytest.raises(ib.InputError) as caught:
        ib.Allocator.load(path)
    assert str(caught.value).startswith(f"{path}: policy {source}:mine: its file has changed since")
    source.unlink()
    with pytest.raises(ib.InputError, match=f"^{path}: {source}: No such file"):
        ib.Allocator.load(path)


def test_a_policy_state_without_arrays_is_not_saved() -> None:
    @ib.register(name="keeps-a-list")
    class Keeper:
        def init(setup: Any) -> Any:
            return {"heard": []}

        def select(setup: Any, state: Any, slot: Any, picks: Any) -> int:
            return int(ib.top_m(slot.indices, slot.available, setup.M, slot.scratch, picks))

        def update(setup: Any, state: Any, slot: Any, feedback: Any) -> None:
            state["heard"].append((feedback.channel, feedback.reward))

    allocator = ib.Allocator("keeps-a-list", **SIZE)
    allocator.report(allocator.decide(np.zeros((4, 2))).request_id, [1.0, 0.1])
    assert allocator._core.supervisor.learner.state == {"heard": [(0, 1.0), (1, 0.1)]}
    with pytest.raises(ib.InputError, match=r"^policy keeps-a-list: state is a dict; must be an array to be saved"):
        state_of(allocator)
