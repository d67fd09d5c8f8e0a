"""The client: answers as the library gives them, mistakes as the library raises them, and patience."""

import http.server
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import idleband as ib
from idleband.errors import InputError
from idleband.service.client import Client, ServiceError
from tests.service.running import InThread, K, eventually, in_thread, question, settings

CONTEXTS = question("")["contexts"]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InThread]:
    measured = settings(feedback="perturbation")
    with in_thread(tmp_path_factory.mktemp("client"), main=settings(), measured=measured) as running:
        yield running


@pytest.fixture
def client(service: InThread) -> Iterator[Client]:
    with Client(f"http://127.0.0.1:{service.port}") as client:
        yield client


def test_it_is_like_an_allocator_here(service: InThread, client: Client) -> None:
    here = ib.Allocator("mp-ucb", channels=K, users=2, dimension=2)
    for i in range(20):
        contexts = np.array(question("", i)["contexts"])
        asked = {
            "users": i % 3, "available": np.arange(K) != i % K, "states": [None, 1, 0, None], "slot": 2 * i + 1,
            "incumbent": (0, 3) if i % 7 == 6 else None,
        }  # fmt: skip
        decision = client.decide(contexts, **asked, request=f"r{i}")
        assert decision == here.decide(contexts, **asked, request_id=f"r{i}")
        rewards = {k: (0.1, 1.0)[(k + i) % 2] for k in decision.channels}
        states = {k: (k + i) % 2 for k in decision.channels}
        assert client.report(f"r{i}", rewards, states) == here.report(f"r{i}", rewards, states)
        assert client.report(f"r{i}", rewards) == here.report(f"r{i}", rewards)
    last = here.decide(CONTEXTS, request_id="last")
    assert client.decide(CONTEXTS, request="last") == last
    assert client.explain("last") == here.explain("last").to_dict()
    assert client.vacate([1, 2]) == list(here.vacate([1, 2]))
    assert client.decide(CONTEXTS, request="left").channels == here.decide(CONTEXTS, request_id="left").channels
    client.restore([1])
    here.restore([1])
    found, expected = client.snapshot(), here.status()
    expected["last"]["request"] = expected["last"].pop("request_id")
    expected["last"] = {key: list(v) if isinstance(v, tuple) else v for key, v in expected["last"].items()}
    its = json.loads(json.dumps(here.settings.to_dict()))
    assert found == {"name": "main", **expected, "settings": its}
    client.reset()
    assert client.health()["status"] == "ok"


def test_what_was_measured_is_sent(service: InThread) -> None:
    with Client(f"http://127.0.0.1:{service.port}", "measured") as client:
        decision = client.decide(CONTEXTS)
        rewards = dict.fromkeys(decision.channels, 1.0)
        assert client.report(str(decision.request_id), rewards, None, dict.fromkeys(rewards, 0.25)).learned
        with pytest.raises(ib.ConflictError):
            client.report(str(decision.request_id), rewards, None, dict.fromkeys(rewards, 0.5))


def test_every_question_has_a_name_of_its_own(client: Client) -> None:
    assert client.decide(CONTEXTS).request_id != client.decide(CONTEXTS).request_id


def test_mistakes_are_those_of_the_library(client: Client, service: InThread) -> None:
    client.decide(CONTEXTS, request="mine")
    with pytest.raises(ib.ConflictError, match="mine"):
        client.decide([[0.0, 0.0]] * K, request="mine")
    with pytest.raises(ib.UnknownRequestError, match="other"):
        client.report("other", {})
    with pytest.raises(ib.UnknownRequestError, match="other"):
        client.explain("other")
    with pytest.raises(InputError, match="contexts"):
        client.decide([[0.0]])
    with pytest.raises(InputError, match="users"):
        client.decide(CONTEXTS, users=99)
    with pytest.raises(InputError, match="channels"):
        client.vacate([99])
    other = Client(f"http://127.0.0.1:{service.port}", "nobody")
    with other, pytest.raises(ib.UnknownRequestError, match="nobody"):
        other.snapshot()


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_what_json_cannot_say(client: Client, number: float) -> None:
    with pytest.raises(InputError, match="contexts: holds a nan or an infinite number"):
        client.decide([[number, 0.0]] * K)
    with pytest.raises(InputError, match="outcomes: holds a nan or an infinite number"):
        client.report("mine", {0: number})


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda client: client.report("mine", [1.0, 0.1]), "rewards = \\[1.0, 0.1\\]: must be a dict by channel"),
        (lambda client: client.report("mine", {0: 1.0}, states=[1]), "states = \\[1\\]: must be a dict by channel"),
        (lambda client: client.report("mine", {0: 1.0}, {1: 1}), "states: channel 1 has no reward"),
        (lambda client: client.report("mine", {0: None}), "reward"),
        (lambda client: client.report("mine", {0: "1.0"}), "reward"),
        (lambda client: client.vacate(1), "channels"),
        (lambda client: client.restore("1"), "channels"),
        (lambda client: client.decide(CONTEXTS, users="2"), "users"),
        (lambda client: client.decide(CONTEXTS, states={0: 1}), "states"),
        (lambda client: client.decide(object()), "body: object cannot be sent"),
    ],
)
def test_mistakes_of_a_caller(client: Client, call: Any, says: str) -> None:
    client.decide(CONTEXTS, request="mine")
    with pytest.raises(InputError, match=says):
        call(client)


@pytest.mark.parametrize("name", ["a b", "ä/ö", "a?b=c", "../main", "%2e"])
def test_names_are_sent_as_they_are(service: InThread, name: str) -> None:
    with Client(f"http://127.0.0.1:{service.port}", name) as client, pytest.raises(ib.UnknownRequestError):
        client.snapshot()


@pytest.mark.parametrize("url", ["localhost:8765", "ftp://localhost", "http://", "", "http://localhost:port"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(InputError, match="url"):
        Client(url)


def test_the_token(tmp_path: Path) -> None:
    token = "a-token-of-the-tests"
    with in_thread(tmp_path, token=token) as service:
        url = f"http://127.0.0.1:{service.port}/"  # a slash at the end does no harm
        with Client(url, token=token) as client:
            assert client.snapshot()["name"] == "main"
        for wrong in (None, token[:-1]):
            with Client(url, token=wrong) as client, pytest.raises(InputError, match="token"):
                client.snapshot()


def test_nobody_there() -> None:
    with socket.socket() as kept:  # bound, so that nobody else takes the port, and not listening
        kept.bind(("127.0.0.1", 0))
        client = Client(f"http://127.0.0.1:{kept.getsockname()[1]}", patience=0.1)
        with pytest.raises(ServiceError, match=r"127\.0\.0\.1"):
            client.snapshot()


def test_patience_through_a_restart(tmp_path: Path) -> None:
    """What was said while nobody was there is answered when somebody is; what was answered is answered again alike."""
    service = InThread(tmp_path)
    with Client(f"http://127.0.0.1:{service.port}") as client:
        first = client.decide(CONTEXTS, request="first")
        service.close()
        found = []
        waiting = threading.Thread(target=lambda: found.append(client.decide(CONTEXTS, request="second")), daemon=True)
        waiting.start()
        again = InThread(tmp_path, port=service.port)
        waiting.join(30)
        assert found[0].slot == 2
        assert client.decide(CONTEXTS, request="first") == first
        assert client.report("first", dict.fromkeys(first.channels, 1.0)).learned == first.channels
        again.close()


def test_patience_through_a_full_disk(tmp_path: Path) -> None:
    with in_thread(tmp_path) as service, Client(f"http://127.0.0.1:{service.port}") as client:
        journal = service.service.office.journal
        journal._writer.execute("PRAGMA query_only = ON")
        found: list[ib.Decision] = []
        waiting = threading.Thread(target=lambda: found.append(client.decide(CONTEXTS, request="r")), daemon=True)
        waiting.start()
        eventually(lambda: service.service.office.failure)
        journal._writer.execute("PRAGMA query_only = OFF")
        waiting.join(30)
        assert found[0].slot == 1


@pytest.mark.parametrize(("status", "text"), [(500, b"oops"), (500, b"[1]"), (501, b'"no"')])
def test_a_service_that_fails(status: int, text: bytes) -> None:
    """Not a mistake of the caller."""

    class Failing(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Failing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with Client(f"http://127.0.0.1:{server.server_port}") as client, pytest.raises(ServiceError):
            client.snapshot()
        server.shutdown()
