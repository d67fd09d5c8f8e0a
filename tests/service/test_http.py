"""The edge: whatever is said that should not be is refused with a 4xx and one line, and nothing changes by it."""

import contextlib
import http.client
import json
import resource
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from idleband.service.http import Limits
from tests.own_policy import MINE
from tests.service.running import LONG, D, InThread, K, eventually, feedback, in_thread, question, settings

TOKEN = "a-token-of-the-tests"
GOOD = question("q")
DECIDE, REPORT = "/allocators/main/decide", "/allocators/main/report"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InThread]:
    """One that has handed out channels 0 and 1 under the name "known", in slot 10, and knows what the first returned:
    0.1, in state 0."""
    with in_thread(tmp_path_factory.mktemp("http"), main=settings("mp-lucb", patience=50)) as running:
        answer = running.decide("known", slot=10, incumbent=[0, 1]).data
        said = feedback(answer)
        assert running.report({**said, "outcomes": said["outcomes"][:1]}).status == 200
        yield running


@pytest.fixture
def unchanged(service: InThread) -> Iterator[InThread]:
    """The service; after the test its state and its journal must be what they were."""

    def everything() -> tuple[bytes, int, list[str]]:
        office = service.service.office
        return service.state(), service.within(lambda: office._seq), service.get("/allocators").data["allocators"]

    before = everything()
    yield service
    assert everything() == before


def with_(**changed: Any) -> bytes:
    return json.dumps({**GOOD, **changed}).encode()


def without(key: str) -> bytes:
    return json.dumps({k: v for k, v in GOOD.items() if k != key}).encode()


def contexts(first: str) -> bytes:
    """A question with one number as it stands here."""
    return with_(contexts=[["@"] * D] * K).replace(b'"@"', first.encode(), 1).replace(b'"@"', b"0.5")


QUESTIONS = {
    "nothing": b"",
    "text": b"please",
    "half of it": json.dumps(GOOD).encode()[:-5],
    "more than one": json.dumps(GOOD).encode() * 2,
    "not an object": b"[]",
    "not UTF-8": b'{"request": "\xff\xfe"}',
    "a lone surrogate": b'{"request": "\\ud800", "contexts": null}',
    "a lone surrogate in a name": b'{"\\udfff": 1}',
    "an unknown field": with_(colour="red"),
    "an unknown field of two lines": with_(**{"co\nlour": 1}),
    "an unknown field as long as a book": with_(**{"x" * 10**6: 1}),
    "no request": without("request"),
    "a request that is a number": with_(request=5),
    "a request of no characters": with_(request=""),
    "a request of 10,000 characters": with_(request="r" * 10_000),
    "a request that cannot be printed": with_(request="a\x00b"),
    "a request of two lines": with_(request="a\nb"),
    "no contexts": without("contexts"),
    "NaN": contexts("NaN"),
    "infinity": contexts("Infinity"),
    "a number beyond all floats": contexts("1e999"),
    "a number that is too large": contexts("1e7"),
    "true for a number": contexts("true"),
    "text for a number": contexts('"0.5"'),
    "null for a number": contexts("null"),
    "an integer of 5,000 digits": contexts("9" * 5000),
    "a row too few": with_(contexts=GOOD["contexts"][1:]),
    "a row too many": with_(contexts=[*GOOD["contexts"], [0.5] * D]),
    "a number too few": with_(contexts=[[0.5] * (D - 1)] * K),
    "a number too few in one row": with_(contexts=[*GOOD["contexts"][1:], [0.5]]),
    "a million contexts": b'{"request": "q", "contexts": [' + b"[0]," * (10**6 - 1) + b"[0]]}",
    "a flat list": with_(contexts=[0.5] * K),
    "contexts too deep by one": with_(contexts=[[[0.5]] * D] * K),
    "lists 100,000 deep": b'{"request": "q", "contexts": ' + b"[" * 10**5 + b"]" * 10**5 + b"}",
    "objects 100,000 deep": b'{"a":' * 10**5 + b"1" + b"}" * 10**5,
    "too many users": with_(users=3),
    "users below none": with_(users=-1),
    "one and a half users": with_(users=1.5),
    "users as text": with_(users="1"),
    "true users": with_(users=True),
    "users beyond all integers": with_(users=10**30),
    "the slot of the last decision": with_(slot=10),
    "a slot in the past": with_(slot=3),
    "slot nought": with_(slot=0),
    "a slot too far": with_(slot=2**53 + 1),
    "too few flags": with_(available=[True] * (K - 1)),
    "flags that are numbers": with_(available=[1] * K),
    "too few states": with_(states=[0]),
    "a state that there is not": with_(states=[2, None, None, None]),
    "a state below none": with_(states=[-2, None, None, None]),
    "half a state": with_(states=[0.5, None, None, None]),
    "a state beyond all floats": with_(states=[10**400, None, None, None]),
    "an incumbent's channel that there is not": with_(incumbent=[K]),
    "an incumbent's channel twice": with_(incumbent=[1, 1]),
    "an incumbent that is a number": with_(incumbent=1),
}


@pytest.mark.parametrize("body", QUESTIONS.values(), ids=QUESTIONS)
def test_a_bad_question(unchanged: InThread, body: bytes) -> None:
    reply = unchanged.post(DECIDE, body)
    assert reply.status == 400
    assert reply.reason


def outcome(**changed: Any) -> dict[str, Any]:
    return {"request": "known", "outcomes": [{"channel": 0, "reward": 1.0, **changed}]}


REPORTS = {
    "no outcomes": (400, {"request": "known"}),
    "a reward beyond what a channel can pay": (400, outcome(channel=1, reward=1.5)),
    "a reward below": (400, outcome(channel=1, reward=-0.1)),
    "true for a reward": (400, outcome(channel=1, reward=True)),
    "no reward": (400, {"request": "known", "outcomes": [{"channel": 1}]}),
    "a state that there is not": (400, outcome(channel=1, state=2)),
    "half a state": (400, outcome(channel=1, state=0.5)),
    "a perturbation that this allocator does not learn from": (400, outcome(channel=1, perturbation=0.5)),
    "a channel that was not handed out": (400, outcome(channel=3)),
    "a channel that there is not": (400, outcome(channel=K)),
    "a channel below none": (400, outcome(channel=-1)),
    "a channel twice": (400, {"request": "known", "outcomes": [{"channel": 1, "reward": 1.0}] * 2}),
    "an unknown field": (400, {**outcome(channel=1), "colour": "red"}),
    "an unknown field of an outcome": (400, outcome(channel=1, colour="red")),
    "an unknown decision": (404, {**outcome(), "request": "unknown"}),
    "an unknown decision of 10,000 characters": (400, {**outcome(), "request": "u" * 10_000}),
    "another reward": (409, outcome(reward=1.0)),
    "another state": (409, outcome(reward=0.1, state=1)),
    # All of it or nothing: the second channel is news, and is not learned because of the first.
    "another reward beside one that is news": (
        409, {"request": "known", "outcomes": [{"channel": 0, "reward": 1.0}, {"channel": 1, "reward": 1.0}]},
    ),
    "a reference beyond all sums": (
        400, {**outcome(channel=1), "reference": {
            "static": 1e308, "contextual": 1.0, "suboptimal_static": 0, "suboptimal_contextual": 0}},
    ),
    "a million outcomes": (
        400, b'{"request": "known", "outcomes": [' + b'{"channel":1,"reward":1},' * 160_000 + b'{}]}',
    ),
}  # fmt: skip


@pytest.mark.parametrize(("status", "said"), REPORTS.values(), ids=REPORTS)
def test_bad_feedback(unchanged: InThread, status: int, said: Any) -> None:
    reply = unchanged.post(REPORT, said)
    assert reply.status == status, reply
    assert reply.reason


@pytest.mark.parametrize("number", ["NaN", "1e999", "-Infinity"])
def test_a_reward_that_is_no_number(unchanged: InThread, number: str) -> None:
    said = json.dumps(outcome(channel=1, reward=0.25)).replace("0.25", number).encode()
    assert unchanged.post(REPORT, said).status == 400


def test_the_same_feedback_again_is_acknowledged_and_not_applied(unchanged: InThread) -> None:
    said = {"request": "known", "outcomes": [{"channel": 0, "reward": 0.1, "state": 0}]}
    reply = unchanged.post(REPORT, said)
    assert (reply.status, reply.data) == (200, {"learned": [], "repeated": [0], "late": False})


def test_the_same_question_again_gets_the_same_answer(unchanged: InThread) -> None:
    answer = unchanged.decide("known", slot=10, incumbent=[0, 1])
    assert (answer.status, answer.data["slot"], answer.data["channels"]) == (200, 10, [0, 1])
    assert unchanged.decide("known", incumbent=[0, 1]).data == answer.data


def test_another_question_under_the_same_name(unchanged: InThread) -> None:
    reply = unchanged.decide("known", number=1)
    assert (reply.status, "known" in reply.reason) == (409, True)


NEW = {"name": "other", "policy": "mp-ucb", "channels": K, "users": 2, "dimension": D}
SETTINGS = {
    "no name": {"name": None},
    "a name with a slash": {"name": "a/b"},
    "a name that leads elsewhere": {"name": "../b"},
    "a name of 81 letters": {"name": "a" * 81},
    "no policy of ours": {"policy": "mp-nothing"},
    "somebody's own policy": {"policy": "file.py:x"},
    "an oracle, without a scenario": {"policy": "oracle-static"},
    "a parameter that the policy does not have": {"parameters": {"beta": 1.0}},
    "a parameter out of its range": {"parameters": {"L": -1.0}},
    "a parameter of another kind": {"parameters": {"L": "wide"}},
    "a parameter of 400 digits": {"parameters": {"L": 10**400}},
    "a parameter named as a setting is": {"parameters": {"channels": 3}},
    "no channels": {"channels": 0},
    "too many channels": {"channels": 10_001},
    "channels beyond all floats": {"channels": 10**400},
    "more users than channels": {"users": K + 1},
    "no users": {"users": 0},
    "users as text": {"users": "2"},
    "no entries": {"dimension": 0},
    "an unknown kind of feedback": {"feedback": "smoke"},
    "one reward": {"rewards": [1.0]},
    "rewards the wrong way round": {"rewards": [1.0, 0.1]},
    "rewards that are too large": {"rewards": [0.0, 1e7]},
    "a seed below none": {"seed": -1},
    "no patience": {"patience": 0},
    "too much patience": {"patience": 10**7},
    "an unknown fallback": {"fallback": "mp-nothing"},
    "an oracle as fallback": {"fallback": "oracle-static"},
    "an oracle as incumbent": {"incumbent": "genie"},
    "a deadline of nothing": {"deadline": 0.0},
    "a deadline below": {"deadline": -1.0},
    "a collision limit above one": {"collision_limit": 1.01},
    "an unknown setting": {"colour": "red"},
    "a scenario": {"scenario": "S1"},
    "more than there is memory": {"policy": "mp-lucb", "channels": 10_000, "dimension": 10_000},
}


@pytest.mark.parametrize("changed", SETTINGS.values(), ids=SETTINGS)
def test_bad_settings(unchanged: InThread, changed: dict[str, Any]) -> None:
    reply = unchanged.post("/allocators", {**NEW, **changed})
    assert reply.status == 400
    assert reply.reason


@pytest.mark.parametrize("field", ["policy", "fallback", "incumbent"])
def test_nobody_brings_code(unchanged: InThread, tmp_path: Path, field: str) -> None:
    """A file of somebody's own is refused unread, though it is there."""
    trace, file = tmp_path / "trace", tmp_path / "user_code.py"
    file.write_text(f"open({str(trace)!r}, 'w').close()\n{MINE}")
    reply = unchanged.post("/allocators", {**NEW, field: f"{file}:mine"})
    assert (reply.status, field in reply.reason) == (400, True)
    assert not trace.exists()


@pytest.mark.parametrize("field", NEW)
def test_a_setting_left_out(unchanged: InThread, field: str) -> None:
    assert field in unchanged.post("/allocators", {k: v for k, v in NEW.items() if k != field}).reason


def test_other_settings_under_the_same_name(unchanged: InThread) -> None:
    reply = unchanged.post("/allocators", {**NEW, "name": "main"})
    assert (reply.status, "main" in reply.reason) == (409, True)


CHANNELS = {
    "a channel that there is not": {"channels": [K]},
    "a channel below none": {"channels": [-1]},
    "a channel twice": {"channels": [1, 1]},
    "true for a channel": {"channels": [True]},
    "not a list": {"channels": 1},
    "an unknown field": {"channels": [1], "colour": "red"},
    "nothing": {},
}


@pytest.mark.parametrize("what", ["vacate", "restore"])
@pytest.mark.parametrize("said", CHANNELS.values(), ids=CHANNELS)
def test_channels_that_there_are_not(unchanged: InThread, what: str, said: dict[str, Any]) -> None:
    assert unchanged.post(f"/allocators/main/{what}", said).status == 400


PLACES = {
    "no such path": ("GET", "/nothing", 404),
    "no such path below an allocator": ("POST", "/allocators/main/nothing", 404),
    "a slash at the end": ("GET", "/allocators/", 404),
    "no such allocator to look at": ("GET", "/allocators/other", 404),
    "no such allocator to reset": ("POST", "/allocators/other/reset", 404),
    "no such allocator to watch": ("GET", "/allocators/other/watch", 404),
    "a name that is not UTF-8": ("GET", "/allocators/%ff%fe", 404),
    "a name of two lines": ("GET", "/allocators/a%0ab", 404),
    "a name as long as a book": ("GET", "/allocators/" + "a" * 10_000, 404),
    "no such file": ("GET", "/static/nothing", 404),
    "a file outside": ("GET", "/static/..%2fapp.py", 404),
    "no such method": ("DELETE", "/allocators/main", 405),
    "a question by GET": ("GET", DECIDE, 405),
    "a look by POST": ("POST", "/allocators/main", 405),
    "no request to explain": ("GET", "/allocators/main/explain", 400),
    "an unknown request to explain": ("GET", "/allocators/main/explain?request=other", 404),
    "no settings for a run": ("GET", "/playground/run", 400),
    "a run of nothing": ("GET", "/playground/run?settings={}", 400),
}


@pytest.mark.parametrize(("method", "path", "status"), PLACES.values(), ids=PLACES)
def test_places_that_there_are_not(unchanged: InThread, method: str, path: str, status: int) -> None:
    reply = unchanged.say(method, path)
    assert reply.status == status
    assert reply.reason
    assert status != 405 or reply.headers["allow"]


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonp"])
def test_what_does_not_say_that_it_is_json(unchanged: InThread, kind: str) -> None:
    assert unchanged.post(DECIDE, GOOD, Content_Type=kind).status == 415


def test_json_may_say_more_of_itself(service: InThread) -> None:
    question = b'{"request": "plain", "users": 0, "contexts": [[0, 0], [0, 0], [0, 0], [0, 0]]}'
    assert service.post(DECIDE, question, Content_Type="Application/JSON; charset=utf-8").status == 200


@pytest.mark.parametrize("host", ["example.org", "127.0.0.1.example.org", "localhost.example.org:8765", "", "[::2]"])
def test_called_by_another_name(unchanged: InThread, host: str) -> None:
    """A page from elsewhere whose name was made to point here: without a token it would be let in."""
    reply = unchanged.say("POST", DECIDE, GOOD, Host=host)
    assert reply.status == 421
    assert reply.reason


@pytest.mark.parametrize(
    "said",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
@pytest.mark.parametrize("path", [DECIDE, "/allocators/main/reset"])
def test_a_page_from_elsewhere_has_somebodys_browser_ask(unchanged: InThread, path: str, said: dict[str, str]) -> None:
    """A form of another site needs no leave to be sent here, and would be let in without a token."""
    reply = unchanged.say("POST", path, GOOD, **said)
    assert reply.status == 403
    assert reply.reason


def test_links_from_elsewhere_lead_to_the_pages(service: InThread) -> None:
    for path in ("/", "/playground"):
        assert service.get(path, **{"Sec-Fetch-Site": "cross-site"}).status == 200
    for host in ("127.0.0.1", "localhost"):
        own = f"{host}:{service.port}"
        assert service.get("/allocators", Host=own, Origin=f"http://{own}").status == 200
        for other in (f"http://{host}:{service.port + 1}", f"http://{host}", "null"):
            assert "page from elsewhere" in service.get("/allocators", Host=own, Origin=other).reason


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8765", "[::1]:8765"])
def test_names_of_this_machine(service: InThread, host: str) -> None:
    assert service.get("/health", Host=host).status == 200


def test_every_answer_keeps_pages_from_elsewhere_out(service: InThread) -> None:
    for path in ("/health", "/nothing", "/"):
        headers = service.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert not any(name.startswith("access-control") for name in headers)


# --- the token -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InThread]:
    with in_thread(tmp_path_factory.mktemp("guarded"), token=TOKEN) as running:
        yield running


@pytest.mark.parametrize(
    "shown",
    ["", "Bearer", "Bearer ", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer a", f"Basic {TOKEN}", TOKEN,
     f"Bearer {TOKEN.upper()}", f"Bearer {TOKEN} {TOKEN}", "Bearer \xe9"],
)  # fmt: skip
def test_no_token_or_a_wrong_one(guarded: InThread, shown: str) -> None:
    before = guarded.state()
    for method, path, body in (
        ("POST", DECIDE, GOOD), ("GET", "/allocators/main", None), ("GET", "/metrics", None),
        ("POST", "/allocators", NEW), ("GET", "/nothing", None),
    ):  # fmt: skip
        reply = guarded.say(method, path, body, Authorization=shown)
        assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer")
        assert reply.reason
        assert TOKEN not in reply.reason
    assert guarded.state() == before


def test_the_token(guarded: InThread) -> None:
    assert guarded.decide("asked").status == 200
    assert guarded.get("/allocators", Authorization=f"bearer  {TOKEN}").status == 200


def test_a_token_is_enough_whatever_the_name(guarded: InThread) -> None:
    """Behind a proxy the service goes by another name."""
    assert guarded.get("/allocators", Host="example.org").status == 200


def test_health_and_pages_need_no_token(guarded: InThread) -> None:
    for path in ("/health", "/", "/playground"):
        assert guarded.get(path, Authorization="").status == 200


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "body: is empty"),
        (with_(user=1), "unknown field 'user': did you mean 'users'? known: request, contexts, users"),
        (with_(contexts=[[float("nan")] * D] * K), "NaN and Infinity are no numbers of JSON"),
        (with_(contexts=[[0.5] * D] * 3), "contexts of shape (3, 2): must be 4 rows"),
        (with_(states=[2] * K), "0 (a primary user is there) or 1 (none is)"),
    ],
)
def test_what_is_meant_is_said(unchanged: InThread, body: bytes, says: str) -> None:
    assert says in unchanged.post("/allocators/main/decide", body).reason


def test_a_policy_that_there_is_not(unchanged: InThread) -> None:
    for policy, says in (
        ("mp-luc", "unknown policy 'mp-luc': did you mean 'mp-lucb'? known: mp-random"),
        ("mp-lucb:beta=1", "its parameters go into `parameters`"),
    ):
        assert says in unchanged.post("/allocators", {**NEW, "policy": policy}).reason


# --- how much and how often ------------------------------------------------------------------------------------------


def head(path: str, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


def answer_and_end(connection: socket.socket) -> bytes:
    """What comes until the other side has no more to say; or takes no more."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            found += part
    return found


@pytest.mark.parametrize("size", [2**30, 2**40, 10**19])
def test_a_body_that_says_it_is_too_long(unchanged: InThread, size: int) -> None:
    """Refused by its head; nothing of it needs to come."""
    with unchanged.raw() as connection:
        connection.sendall(head(DECIDE, f"Content-Length: {size}"))
        assert answer_and_end(connection).startswith(b"HTTP/1.1 413 ")


def send_without_end(connection: socket.socket, most: int) -> int:
    """Chunks until the other side takes no more of them; how many bytes it took."""
    chunk, sent = b"10000\r\n" + b" " * 65536 + b"\r\n", 0
    with contextlib.suppress(ConnectionError):
        while sent < most:
            connection.sendall(chunk)
            sent += len(chunk)
    return sent


@pytest.mark.parametrize(
    ("path", "status"), [(DECIDE, b"413"), ("/nothing", b"404"), ("/allocators/other/reset", b"404")]
)
def test_a_body_without_end(unchanged: InThread, path: str, status: bytes) -> None:
    """Refused when it is too long, or at once where no body is read at all; then nobody listens any more."""
    most = 512 * 2**20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with unchanged.raw() as connection:
        connection.sendall(head(path, "Transfer-Encoding: chunked"))
        assert send_without_end(connection, most) < 64 * 2**20  # what the limit and the sockets' own memory hold
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < 64 * 2**20
    with unchanged.raw() as connection:  # where nothing is sent beyond that the answer can be read
        connection.sendall(head(path, "Transfer-Encoding: chunked"))
        if status == b"413":
            send_without_end(connection, 4 * 2**20)
            connection.sendall(b"1\r\n \r\n")
        assert answer_and_end(connection).startswith(b"HTTP/1.1 " + status)


def test_a_body_without_end_from_somebody_without_a_token(guarded: InThread) -> None:
    with guarded.raw() as connection:
        connection.sendall(head(DECIDE, "Transfer-Encoding: chunked"))
        assert answer_and_end(connection).startswith(b"HTTP/1.1 401 ")


def test_a_body_that_ends_early(unchanged: InThread) -> None:
    with unchanged.raw() as connection:
        connection.sendall(head(DECIDE, "Content-Length: 100") + b'{"request":')
    assert unchanged.get("/health").status == 200


@pytest.mark.parametrize(
    "said", [b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", head(DECIDE, "Content-Length: -5")]
)
def test_what_is_not_http(unchanged: InThread, said: bytes) -> None:
    with unchanged.raw() as connection:
        connection.sendall(said)
        connection.shutdown(socket.SHUT_WR)
        assert answer_and_end(connection)[:12] in (b"", b"HTTP/1.1 400")
    assert unchanged.get("/health").status == 200


def test_a_body_just_short_enough_and_one_byte_too_long(tmp_path: Path) -> None:
    most = 1000
    with in_thread(tmp_path, limits=Limits(body=most)) as running:
        body = json.dumps(GOOD).encode()
        assert running.post(DECIDE, body + b" " * (most - len(body))).status == 200
        reply = running.post(DECIDE, body + b" " * (most - len(body) + 1))
        assert (reply.status, str(most) in reply.reason) == (413, True)


def test_a_connection_is_kept_after_a_mistake_whose_body_was_read(service: InThread) -> None:
    """Only what was not read to its end costs a connection."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=LONG)
    with contextlib.closing(connection):
        connection.connect()
        first = connection.sock
        for _ in range(2):
            connection.request("POST", DECIDE, b"{}", {"Content-Type": "application/json"})
            reply = connection.getresponse()
            assert (reply.status, reply.read() != b"") == (400, True)
            assert connection.sock is first


def test_too_many_requests(tmp_path: Path) -> None:
    with in_thread(tmp_path, limits=Limits(rate=5)) as running:
        replies = [running.decide("often") for _ in range(60)]
        refused = [reply for reply in replies if reply.status != 200]
        assert [reply.status for reply in replies[:5]] == [200] * 5
        assert refused
        for reply in refused:
            assert (reply.status, reply.headers["retry-after"]) == (429, "1")
            assert reply.reason
        # It is a rate, and no end: whoever asks on and on is let in as often as anybody may be.
        eventually(lambda: running.decide("often").status == 200, within=10)


def test_too_many_connections(tmp_path: Path) -> None:
    with in_thread(tmp_path, limits=Limits(connections=4)) as running:
        held = [running.raw() for _ in range(4)]
        assert eventually(lambda: running.get("/health").status == 503)
        for connection in held:
            connection.close()
        eventually(lambda: running.get("/health").status == 200)


def test_whoever_is_slow_keeps_nobody_waiting(service: InThread) -> None:
    with service.raw() as slow:
        slow.sendall(head(DECIDE, "Content-Length: 100") + b"{")
        answered = threading.Event()
        threading.Thread(target=lambda: (service.get("/health"), answered.set())).start()
        assert answered.wait(10)
