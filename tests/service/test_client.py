"""The client: the interface of an allocator, its errors, and repeated requests."""

import http.server
import inspect
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import idleband as ib
from idleband.errors import ConflictError, InputError, UnknownRequestError
from idleband.service.client import Client, ServiceError
from tests.service.running import TIMEOUT, InThread, K, contexts_of, eventually, in_thread, settings

CONTEXTS = contexts_of(0)
NAMES = ["ch1", "ch2", "ch3", "ch4"]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InThread]:
    allocators = {"main": settings(channel_names=NAMES), "measured": settings(feedback="perturbation")}
    with in_thread(tmp_path_factory.mktemp("client"), **allocators) as running:
        yield running


@pytest.fixture
def client(service: InThread) -> Iterator[Client]:
    with Client(f"http://127.0.0.1:{service.port}") as client:
        yield client


@pytest.mark.parametrize("method", ["decide", "report", "step", "vacate", "restore", "reset", "explain", "status"])
def test_methods_have_the_signatures_of_an_allocator(method: str) -> None:
    here = inspect.signature(getattr(ib.Allocator, method)).parameters
    remote = inspect.signature(getattr(Client, method)).parameters
    found = [(one.name, one.kind, one.default) for one in remote.values() if one.name != "reference"]
    assert found == [(one.name, one.kind, one.default) for one in here.values()]


def test_answers_are_those_of_an_allocator(client: Client) -> None:
    here = ib.Allocator("mp-ucb", channels=K, users=2, dimension=2, channel_names=NAMES)
    for i in range(20):
        contexts = np.array(contexts_of(i))
        request: dict[str, Any] = {
            "users": i % 3, "available": np.arange(K) != i % K, "states": [None, 1, 0, None], "slot": 2 * i + 1,
            "incumbent": ("ch1", 3) if i % 7 == 6 else None, "request_id": f"r{i}",
        }  # fmt: skip
        decision = client.decide(contexts, **request)
        assert decision == here.decide(contexts, **request)
        states = [(k + i) % 2 for k in decision.channels]
        rewards = [(0.1, 1.0)[s] for s in states]
        assert client.report(f"r{i}", rewards, states) == here.report(f"r{i}", rewards, states)
        by_index = dict(zip(decision.channels, rewards, strict=True))
        by_name = {NAMES[k]: reward for k, reward in by_index.items()}
        for again in (rewards, np.array(rewards), by_index, by_name):
            assert client.report(f"r{i}", again) == here.report(f"r{i}", again)
    assert client.decide(CONTEXTS, request_id="last") == here.decide(CONTEXTS, request_id="last")
    assert client.explain("last") == here.explain("last").to_dict()
    assert client.vacate([1, "ch3"]) == here.vacate([1, "ch3"])
    assert client.decide(CONTEXTS, request_id="next").channels == here.decide(CONTEXTS, request_id="next").channels
    client.restore(["ch2"])
    here.restore(["ch2"])
    found, expected = client.status(), json.loads(json.dumps(here.status()))
    assert found["last"].pop("channel_names") == [NAMES[k] for k in expected["last"]["channels"]]
    assert {key: found[key] for key in expected} == expected
    assert (found["name"], found["settings"]) == ("main", json.loads(json.dumps(here.settings.to_dict())))
    client.reset()
    assert client.health()["status"] == "ok"


def test_steps_of_several_allocators(client: Client) -> None:
    x = np.array(contexts_of(1))
    first = client.step(decide={"contexts": x}).decision
    assert first is not None
    report = {"request_id": first.request_id, "rewards": np.ones(len(first.channels))}
    found, failed, second = client.steps([
        {"name": "main", "report": report, "decide": {"contexts": x, "request_id": "in steps"}},
        {"name": "main", "report": {**report, "rewards": [0.1] * len(first.channels)}, "decide": {"contexts": x}},
        {"name": "measured", "report": None, "decide": {"contexts": x}},
    ])  # fmt: skip
    assert isinstance(found, ib.StepResult)
    assert isinstance(second, ib.StepResult)
    assert found == (ib.Receipt(first.channels), client.decide(x, request_id="in steps"))
    assert isinstance(failed, ib.ConflictError)
    assert second.receipt is None
    assert second.decision is not None


@pytest.mark.parametrize(
    ("report", "decide", "message"),
    [
        (None, None, "one of them must be given"), ([], None, "report = .*must be a mapping"),
        (None, 3, "decide = 3: must be a mapping"), (None, {"contexts": [[float("nan")]]}, "decide: contains nan"),
        (None, {"context": []}, "did you mean 'contexts'"), ({"rewards": []}, None, "request_id"),
    ],
)  # fmt: skip
def test_invalid_steps_are_refused(client: Client, report: Any, decide: Any, message: str) -> None:
    with pytest.raises(ib.InputError, match=message):
        client.step(report, decide)
    with pytest.raises(ib.InputError, match=r"steps: 3: must be a mapping"):
        client.steps([3])  # type: ignore[list-item]


def test_measured_perturbations_are_sent(service: InThread) -> None:
    with Client(f"http://127.0.0.1:{service.port}", "measured") as client:
        decision = client.decide(CONTEXTS)
        rewards = dict.fromkeys(decision.channels, 1.0)
        request_id = str(decision.request_id)
        assert client.report(request_id, rewards, None, dict.fromkeys(rewards, 0.25)).learned
        with pytest.raises(ConflictError):
            client.report(request_id, rewards, None, dict.fromkeys(rewards, 0.5))


def test_default_request_ids_differ(client: Client) -> None:
    assert client.decide(CONTEXTS).request_id != client.decide(CONTEXTS).request_id


def test_errors_are_those_of_an_allocator(client: Client, service: InThread) -> None:
    client.decide(CONTEXTS, request_id="known")
    with pytest.raises(ConflictError, match="request_id = 'known'"):
        client.decide([[0.0, 0.0]] * K, request_id="known")
    with pytest.raises(UnknownRequestError, match="other"):
        client.report("other", {})
    with pytest.raises(UnknownRequestError, match="other"):
        client.explain("other")
    with pytest.raises(InputError, match="contexts"):
        client.decide([[0.0]])
    with pytest.raises(InputError, match="users"):
        client.decide(CONTEXTS, users=99)
    with pytest.raises(InputError, match="channels"):
        client.vacate([99])
    with (
        Client(f"http://127.0.0.1:{service.port}", "missing") as other,
        pytest.raises(UnknownRequestError, match="missing"),
    ):
        other.status()


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_refused(client: Client, number: float) -> None:
    with pytest.raises(InputError, match="contexts: contains nan or an infinite number"):
        client.decide([[number, 0.0]] * K)
    with pytest.raises(InputError, match="rewards: contains nan or an infinite number"):
        client.report("r", {0: number})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda client: client.report("r", [1.0]), "rewards"),
        (lambda client: client.report("r", {0: "1.0"}), "rewards"),
        (lambda client: client.report("r", 1.0), "rewards"),
        (lambda client: client.report("r", {}, {0: 1}), "rewards"),
        (lambda client: client.vacate(1), "channels"),
        (lambda client: client.restore("ch1"), "channels"),
        (lambda client: client.decide(CONTEXTS, users="2"), "users"),
        (lambda client: client.decide(CONTEXTS, states={0: 1}), "states"),
        (lambda client: client.decide(object()), "body: object cannot be sent"),
    ],
)
def test_invalid_arguments_are_refused(client: Client, call: Any, message: str) -> None:
    client.decide(CONTEXTS, incumbent=[0, 1], request_id="r")
    with pytest.raises(InputError, match=message):
        call(client)


@pytest.mark.parametrize("name", ["a b", "ä/ö", "a?b=c", "../main", "%2e"])
def test_names_of_allocators_are_quoted(service: InThread, name: str) -> None:
    with Client(f"http://127.0.0.1:{service.port}", name) as client, pytest.raises(UnknownRequestError):
        client.status()


@pytest.mark.parametrize("url", ["localhost:8765", "ftp://localhost", "http://", "", "http://localhost:port"])
def test_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="url"):
        Client(url)


def test_token_is_sent(tmp_path: Path) -> None:
    token = "a-token-of-the-tests"
    with in_thread(tmp_path, token=token) as service:
        url = f"http://127.0.0.1:{service.port}/"  # with a trailing slash
        with Client(url, token=token) as client:
            assert client.status()["name"] == "main"
        for wrong in (None, token[:-1]):
            with Client(url, token=wrong) as client, pytest.raises(InputError, match="token"):
                client.status()


def test_unreachable_service_raises_service_error() -> None:
    with socket.socket() as unused:  # bound and not listening
        unused.bind(("127.0.0.1", 0))
        client = Client(f"http://127.0.0.1:{unused.getsockname()[1]}", patience=0.1)
        with pytest.raises(ServiceError, match=r"127\.0\.0\.1"):
            client.status()


def decide_in_thread(client: Client, request_id: str) -> tuple[threading.Thread, list[ib.Decision]]:
    found: list[ib.Decision] = []
    thread = threading.Thread(target=lambda: found.append(client.decide(CONTEXTS, request_id=request_id)), daemon=True)
    thread.start()
    return thread, found


def test_requests_are_repeated_while_the_service_restarts(tmp_path: Path) -> None:
    service = InThread(tmp_path)
    with Client(f"http://127.0.0.1:{service.port}", patience=TIMEOUT) as client:
        first = client.decide(CONTEXTS, request_id="first")
        service.close()
        thread, found = decide_in_thread(client, "second")
        again = InThread(tmp_path, port=service.port)
        thread.join(TIMEOUT)
        assert found[0].slot == 2
        assert client.decide(CONTEXTS, request_id="first") == first
        assert client.report("first", dict.fromkeys(first.channels, 1.0)).learned == first.channels
        again.close()


def test_requests_are_repeated_while_the_disk_is_full(tmp_path: Path) -> None:
    with in_thread(tmp_path) as service, Client(f"http://127.0.0.1:{service.port}", patience=TIMEOUT) as client:
        manager = service.service.manager
        manager.journal._writer.execute("PRAGMA query_only = ON")
        thread, found = decide_in_thread(client, "r")
        eventually(lambda: manager.failure)
        manager.journal._writer.execute("PRAGMA query_only = OFF")
        thread.join(TIMEOUT)
        assert found[0].slot == 1


@pytest.mark.parametrize(("status", "text"), [(500, b"oops"), (500, b"[1]"), (501, b'"no"')])
def test_error_of_the_server_raises_service_error(status: int, text: bytes) -> None:
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
            client.status()
        server.shutdown()
