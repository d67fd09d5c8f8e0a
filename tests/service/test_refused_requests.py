"""Invalid requests are refused with a 4xx status and one line, and change nothing."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from idleband.service import request_body
from tests.own_policy import MINE
from tests.service.running import V1, D, InThread, K, decide_body, in_thread, report_body, settings

VALID = decide_body("q")
DECIDE, REPORT = f"{V1}/main/decide", f"{V1}/main/report"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InThread]:
    """A service with one decision: request_id "known", slot 10, channels 0 and 1. Channel 0 is reported: reward 0.1,
    state 0."""
    with in_thread(tmp_path_factory.mktemp("refused"), main=settings("mp-lucb", patience=50)) as running:
        body = report_body(running.decide("known", slot=10, incumbent=[0, 1]).data)
        assert running.report({**body, "rewards": [0.1, None], "states": [0, None]}).status == 200
        yield running


@pytest.fixture
def unchanged(service: InThread) -> Iterator[InThread]:
    """The service; after the test its state and its journal must be as before."""

    def everything() -> tuple[bytes, int, list[str]]:
        manager = service.service.manager
        return service.state(), service.within(lambda: manager.commits.total), list(manager.allocators)

    before = everything()
    yield service
    assert everything() == before


def with_(**changed: Any) -> bytes:
    return json.dumps({**VALID, **changed}).encode()


def without(key: str) -> bytes:
    return json.dumps({k: v for k, v in VALID.items() if k != key}).encode()


def contexts(first: str) -> bytes:
    """Return a body for decide whose first number is this text."""
    return with_(contexts=[["@"] * D] * K).replace(b'"@"', first.encode(), 1).replace(b'"@"', b"0.5")


DECIDE_BODIES = {
    "empty": b"",
    "text": b"please",
    "cut off": json.dumps(VALID).encode()[:-5],
    "two objects": json.dumps(VALID).encode() * 2,
    "not an object": b"[]",
    "not UTF-8": b'{"request_id": "\xff\xfe"}',
    "a lone surrogate": b'{"request_id": "\\ud800", "contexts": null}',
    "a lone surrogate in a key": b'{"\\udfff": 1}',
    "an unknown field": with_(colour="red"),
    "an unknown field with a line break": with_(**{"co\nlour": 1}),
    "an unknown field of 50,000 characters": with_(**{"x" * 50_000: 1}),
    "no request_id": without("request_id"),
    "a number as request_id": with_(request_id=5),
    "an empty request_id": with_(request_id=""),
    "a request_id of 10,000 characters": with_(request_id="r" * 10_000),
    "a request_id that is not printable": with_(request_id="a\x00b"),
    "a request_id with a line break": with_(request_id="a\nb"),
    "no contexts": without("contexts"),
    "NaN": contexts("NaN"),
    "infinity": contexts("Infinity"),
    "a number above the range of floats": contexts("1e999"),
    "a number above the limit": contexts("1e7"),
    "true as a number": contexts("true"),
    "text as a number": contexts('"0.5"'),
    "null as a number": contexts("null"),
    "an integer of 5,000 digits": contexts("9" * 5000),
    "one row missing": with_(contexts=VALID["contexts"][1:]),
    "one row too many": with_(contexts=[*VALID["contexts"], [0.5] * D]),
    "rows too short": with_(contexts=[[0.5] * (D - 1)] * K),
    "one row too short": with_(contexts=[*VALID["contexts"][1:], [0.5]]),
    "too many contexts": b'{"request_id": "q", "contexts": [' + b"[0]," * 99 + b"[0]]}",
    "a flat list": with_(contexts=[0.5] * K),
    "contexts nested once more": with_(contexts=[[[0.5]] * D] * K),
    "lists 30,000 deep": b'{"request_id": "q", "contexts": ' + b"[" * 30_000 + b"]" * 30_000 + b"}",
    "objects 10,000 deep": b'{"a":' * 10**4 + b"1" + b"}" * 10**4,
    "too many users": with_(users=3),
    "negative users": with_(users=-1),
    "fractional users": with_(users=1.5),
    "users as text": with_(users="1"),
    "true as users": with_(users=True),
    "users above the range of integers": with_(users=10**30),
    "the slot of the last decision": with_(slot=10),
    "a slot in the past": with_(slot=3),
    "slot 0": with_(slot=0),
    "a slot above the limit": with_(slot=2**53 + 1),
    "too few flags": with_(available=[True] * (K - 1)),
    "flags that are numbers": with_(available=[1] * K),
    "too few states": with_(states=[0]),
    "an unknown state": with_(states=[2, None, None, None]),
    "a negative state": with_(states=[-2, None, None, None]),
    "a fractional state": with_(states=[0.5, None, None, None]),
    "a state above the range of floats": with_(states=[10**400, None, None, None]),
    "an unknown channel of the incumbent": with_(incumbent=[K]),
    "a repeated channel of the incumbent": with_(incumbent=[1, 1]),
    "a number as incumbent": with_(incumbent=1),
    "an unknown channel name of the incumbent": with_(incumbent=["ch1"]),
    "a field of the earlier API": with_(request="q"),
}


@pytest.mark.parametrize("body", DECIDE_BODIES.values(), ids=DECIDE_BODIES)
def test_invalid_decide_is_refused(unchanged: InThread, body: bytes) -> None:
    reply = unchanged.post(DECIDE, body)
    assert reply.status == 400
    assert reply.detail


def feedback(rewards: Any, **more: Any) -> dict[str, Any]:
    return {"request_id": "known", "rewards": rewards, **more}


REFERENCE = {"static": 1.0, "contextual": 1.0, "suboptimal_static": 0, "suboptimal_contextual": 0}
REPORT_BODIES = {
    "no rewards": (400, {"request_id": "known"}),
    "a number as rewards": (400, feedback(1.0)),
    "a reward above the highest": (400, feedback([None, 1.5])),
    "a reward below the lowest": (400, feedback({"1": -0.1})),
    "true as a reward": (400, feedback([None, True])),
    "text as a reward": (400, feedback({"1": "1.0"})),
    "a state without a reward": (400, feedback({}, states={"1": 1})),
    "an unknown state": (400, feedback([None, 1.0], states=[None, 2])),
    "a fractional state": (400, feedback([None, 1.0], states=[None, 0.5])),
    "a perturbation for an allocator that learns from rewards": (400, feedback({"1": 1.0}, perturbations={"1": 0.5})),
    "too few rewards": (400, feedback([1.0])),
    "too many rewards": (400, feedback([None, 1.0, 1.0])),
    "a channel that was not assigned": (400, feedback({"3": 1.0})),
    "an unknown channel": (400, feedback({str(K): 1.0})),
    "a negative channel": (400, feedback({"-1": 1.0})),
    "an unknown channel name": (400, feedback({"ch1": 1.0})),
    "an unknown field": (400, feedback({"1": 1.0}, colour="red")),
    "a field of the earlier API": (400, {"request_id": "known", "outcomes": [{"channel": 1, "reward": 1.0}]}),
    "an unknown request_id": (404, {**feedback({"1": 1.0}), "request_id": "unknown"}),
    "an unknown request_id of 10,000 characters": (400, {**feedback({"1": 1.0}), "request_id": "u" * 10_000}),
    "another reward": (409, feedback({"0": 1.0})),
    "another state": (409, feedback({"0": 0.1}, states={"0": 1})),
    # Nothing of a refused report is learned: channel 1 is new.
    "another reward beside a new one": (409, feedback([1.0, 1.0])),
    "a reference above the limit": (400, feedback({"1": 1.0}, reference={**REFERENCE, "static": 1e308})),
    "100 rewards": (400, b'{"request_id": "known", "rewards": [' + b"1," * 99 + b"1]}"),
}


@pytest.mark.parametrize(("status", "body"), REPORT_BODIES.values(), ids=REPORT_BODIES)
def test_invalid_report_is_refused(unchanged: InThread, status: int, body: Any) -> None:
    reply = unchanged.post(REPORT, body)
    assert reply.status == status, reply
    assert reply.detail


LARGE_BODIES = {
    "a million contexts": (DECIDE, b'{"request_id": "q", "contexts": [' + b"[0]," * (10**6 - 1) + b"[0]]}", "bytes"),
    "lists a million deep": (DECIDE, b'{"request_id": "q", "contexts": ' + b"[" * 10**6 + b"]" * 10**6 + b"}", "bytes"),
    "a field of a million characters": (DECIDE, with_(**{"x" * 10**6: 1}), "bytes"),
    "10,000 contexts": (DECIDE, b'{"request_id": "q", "contexts": [' + b"[]," * 9999 + b"[]]}", "values"),
    "a million rewards": (REPORT, b'{"request_id": "known", "rewards": [' + b"1," * 999_999 + b"1]}", "bytes"),
    "10,000 rewards": (REPORT, b'{"request_id": "known", "rewards": [' + b"1," * 9999 + b"1]}", "values"),
    "10,000 channels": (f"{V1}/main/vacate", b'{"channels": [' + b"0," * 9999 + b"1]}", "values"),
    "a million names": (V1, b'{"name": "x", "channel_names": [' + b'"",' * 999_999 + b'""]}', "values"),
}


@pytest.mark.parametrize(("path", "body", "unit"), LARGE_BODIES.values(), ids=LARGE_BODIES)
def test_body_beyond_the_size_of_the_allocator_is_refused_before_it_is_decoded(
    unchanged: InThread, path: str, body: bytes, unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decoded(*_: object) -> None:
        raise AssertionError("the body was decoded")

    monkeypatch.setattr(request_body, "_explain", decoded)  # an invalid body that is decoded gets there
    reply = unchanged.post(path, body)
    assert reply.status == 413
    assert "must " in reply.detail
    assert reply.detail.endswith(unit)


def test_contexts_with_all_digits_and_spaces_are_accepted(service: InThread) -> None:
    rows = [[-0.12345678901234567e-5] * D] * K
    body = json.dumps({"request_id": "digits", "users": 0, "contexts": rows}, indent=8).encode()
    assert service.post(DECIDE, body).status == 200


@pytest.mark.parametrize("number", ["NaN", "1e999", "-Infinity"])
def test_reward_that_is_not_finite_is_refused(unchanged: InThread, number: str) -> None:
    body = json.dumps(feedback([None, 0.25])).replace("0.25", number).encode()
    assert unchanged.post(REPORT, body).status == 400


def test_repeated_report_is_acknowledged_and_not_learned_again(unchanged: InThread) -> None:
    reply = unchanged.post(REPORT, feedback({"0": 0.1}, states={"0": 0}))
    assert (reply.status, reply.data) == (200, {"learned": [], "repeated": [0], "late": False})


def test_slot_far_ahead_is_refused_and_the_next_one_is_free(unchanged: InThread) -> None:
    reply = unchanged.decide("ahead", slot=2**52)
    assert (reply.status, "slot = 4503599627370496: is too far from the last slot, " in reply.detail) == (409, True)


def test_repeated_decide_returns_the_same_decision(unchanged: InThread) -> None:
    reply = unchanged.decide("known", slot=10, incumbent=[0, 1])
    assert (reply.status, reply.data["slot"], reply.data["channels"]) == (200, 10, [0, 1])
    assert unchanged.decide("known", incumbent=[0, 1]).data == reply.data


def test_other_contexts_with_the_same_request_id_conflict(unchanged: InThread) -> None:
    reply = unchanged.decide("known", number=1)
    assert (reply.status, "request_id = 'known'" in reply.detail) == (409, True)


NEW = {"name": "other", "policy": "mp-ucb", "channels": K, "users": 2, "dimension": D}
SETTINGS = {
    "no name": {"name": None},
    "a name with a slash": {"name": "a/b"},
    "a name with ..": {"name": "../b"},
    "a name of 81 letters": {"name": "a" * 81},
    "an unknown policy": {"policy": "mp-nothing"},
    "a policy file": {"policy": "file.py:x"},
    "an oracle, without a scenario": {"policy": "oracle-static"},
    "an unknown parameter": {"parameters": {"beta": 1.0}},
    "a parameter out of range": {"parameters": {"L": -1.0}},
    "a parameter of another type": {"parameters": {"L": "wide"}},
    "a parameter of 400 digits": {"parameters": {"L": 10**400}},
    "a setting as a parameter": {"parameters": {"channels": 3}},
    "no channels": {"channels": 0},
    "too many channels": {"channels": 10_001},
    "channels above the range of floats": {"channels": 10**400},
    "more users than channels": {"users": K + 1},
    "no users": {"users": 0},
    "users as text": {"users": "2"},
    "a negative dimension": {"dimension": -1},
    "unknown feedback": {"feedback": "smoke"},
    "one reward": {"rewards": [1.0]},
    "rewards in the wrong order": {"rewards": [1.0, 0.1]},
    "rewards above the limit": {"rewards": [0.0, 1e7]},
    "a negative seed": {"seed": -1},
    "no patience": {"patience": 0},
    "too much patience": {"patience": 10**7},
    "an unknown fallback": {"fallback": "mp-nothing"},
    "an oracle as fallback": {"fallback": "oracle-static"},
    "an oracle as incumbent": {"incumbent": "genie"},
    "a deadline of 0": {"deadline": 0.0},
    "a negative deadline": {"deadline": -1.0},
    "a collision limit above one": {"collision_limit": 1.01},
    "an unknown setting": {"colour": "red"},
    "a scenario": {"scenario": "S1"},
    "too few channel names": {"channel_names": ["ch1"]},
    "a number as channel name": {"channel_names": ["1", "2", "3", "4"]},
    "too large for memory": {"policy": "mp-lucb", "channels": 10_000, "dimension": 10_000},
}


@pytest.mark.parametrize("changed", SETTINGS.values(), ids=SETTINGS)
def test_invalid_settings_are_refused(unchanged: InThread, changed: dict[str, Any]) -> None:
    reply = unchanged.post(V1, {**NEW, **changed})
    assert reply.status == 400
    assert reply.detail


@pytest.mark.parametrize("field", ["policy", "fallback", "incumbent"])
def test_policy_file_is_refused_without_being_run(unchanged: InThread, tmp_path: Path, field: str) -> None:
    trace, file = tmp_path / "trace", tmp_path / "user_code.py"
    file.write_text(f"open({str(trace)!r}, 'w').close()\n{MINE}")
    reply = unchanged.post(V1, {**NEW, field: f"{file}:mine"})
    assert (reply.status, field in reply.detail) == (400, True)
    assert not trace.exists()


@pytest.mark.parametrize("field", ["name", "policy", "channels", "users"])
def test_missing_setting_is_named(unchanged: InThread, field: str) -> None:
    assert field in unchanged.post(V1, {k: v for k, v in NEW.items() if k != field}).detail


def test_other_settings_with_the_same_name_conflict(unchanged: InThread) -> None:
    reply = unchanged.post(V1, {**NEW, "name": "main"})
    assert (reply.status, "main" in reply.detail) == (409, True)


CHANNELS = {
    "an unknown channel": {"channels": [K]},
    "a negative channel": {"channels": [-1]},
    "a repeated channel": {"channels": [1, 1]},
    "true as a channel": {"channels": [True]},
    "not a list": {"channels": 1},
    "an unknown field": {"channels": [1], "colour": "red"},
    "no channels": {},
}


@pytest.mark.parametrize("operation", ["vacate", "restore"])
@pytest.mark.parametrize("body", CHANNELS.values(), ids=CHANNELS)
def test_invalid_channels_are_refused(unchanged: InThread, operation: str, body: dict[str, Any]) -> None:
    assert unchanged.post(f"{V1}/main/{operation}", body).status == 400


PATHS = {
    "unknown path": ("GET", "/nothing", 404),
    "unknown path below an allocator": ("POST", f"{V1}/main/nothing", 404),
    "path without version": ("GET", "/allocators/main", 404),
    "trailing slash": ("GET", f"{V1}/", 404),
    "status of an unknown allocator": ("GET", f"{V1}/other", 404),
    "reset of an unknown allocator": ("POST", f"{V1}/other/reset", 404),
    "watch of an unknown allocator": ("GET", f"{V1}/other/watch", 404),
    "name that is not UTF-8": ("GET", f"{V1}/%ff%fe", 404),
    "name with a line break": ("GET", f"{V1}/a%0ab", 404),
    "name of 10,000 characters": ("GET", f"{V1}/" + "a" * 10_000, 404),
    "unknown file": ("GET", "/static/nothing", 404),
    "file outside the folder": ("GET", "/static/..%2fapp.py", 404),
    "method not allowed": ("PUT", f"{V1}/main", 405),
    "decide with GET": ("GET", DECIDE, 405),
    "status with POST": ("POST", f"{V1}/main", 405),
    "explain without request_id": ("GET", f"{V1}/main/explain", 400),
    "explain with an unknown request_id": ("GET", f"{V1}/main/explain?request_id=other", 404),
    "run without settings": ("GET", "/v1/playground/run", 400),
    "run with empty settings": ("GET", "/v1/playground/run?settings={}", 400),
}


@pytest.mark.parametrize(("method", "path", "status"), PATHS.values(), ids=PATHS)
def test_unknown_paths_and_methods_are_refused(unchanged: InThread, method: str, path: str, status: int) -> None:
    reply = unchanged.send(method, path)
    assert reply.status == status
    assert reply.detail
    assert status != 405 or reply.headers["allow"]


@pytest.mark.parametrize("path", ["/allocators", "/allocators/main/decide", "/playground/options"])
def test_paths_without_version_point_to_v1(unchanged: InThread, path: str) -> None:
    assert f"/v1{path}" in unchanged.get(path).detail


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonp"])
def test_body_with_another_content_type_is_refused(unchanged: InThread, kind: str) -> None:
    assert unchanged.post(DECIDE, VALID, Content_Type=kind).status == 415


def test_content_type_with_a_charset_is_accepted(service: InThread) -> None:
    body = b'{"request_id": "charset", "users": 0, "contexts": [[0, 0], [0, 0], [0, 0], [0, 0]]}'
    assert service.post(DECIDE, body, Content_Type="Application/JSON; charset=utf-8").status == 200


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "body: is empty"),
        (with_(user=1), "unknown field 'user': did you mean 'users'?"),
        (with_(contexts=[[float("nan")] * D] * K), "JSON has no NaN and no Infinity"),
        (with_(contexts=[[0.5] * D] * 3), "contexts of shape (3, 2): must be 4 rows"),
        (with_(states=[2] * K), "states = [2, 2, 2, 2]"),
    ],
)
def test_common_mistakes_are_explained(unchanged: InThread, body: bytes, message: str) -> None:
    assert message in unchanged.post(DECIDE, body).detail


def test_unknown_policy_is_answered_with_a_suggestion(unchanged: InThread) -> None:
    for policy, message in (
        ("mp-luc", "unknown policy 'mp-luc': did you mean 'mp-lucb'?"),
        ("mp-lucb:beta=1", "parameters belong into `parameters`"),
    ):
        assert message in unchanged.post(V1, {**NEW, "policy": policy}).detail
