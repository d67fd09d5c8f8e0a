"""Middleware: origin, token, rate, security headers, bodies that are not read."""

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

from idleband.service.limits import Limits
from tests.service.running import TIMEOUT, V1, D, InThread, K, decide_body, eventually, in_thread

TOKEN = "a-token-of-the-tests"
VALID = decide_body("q")
DECIDE = f"{V1}/main/decide"
# The operations that do not go through Starlette's router.
EVERY_SLOT = [
    (DECIDE, VALID), (f"{V1}/main/report", {"request_id": "q", "rewards": []}),
    (f"{V1}/main/step", {"decide": VALID}), ("/v1/steps", {"steps": [{"name": "main", "decide": VALID}]}),
]  # fmt: skip
NEW = {"name": "other", "policy": "mp-ucb", "channels": K, "users": 2, "dimension": D}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InThread]:
    with in_thread(tmp_path_factory.mktemp("middleware")) as running:
        yield running


@pytest.fixture(scope="module")
def protected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InThread]:
    """A service with a token."""
    with in_thread(tmp_path_factory.mktemp("protected"), token=TOKEN) as running:
        yield running


# --- origin check ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["example.org", "127.0.0.1.example.org", "localhost.example.org:8765", "", "[::2]"])
def test_request_for_another_host_is_refused(service: InThread, host: str) -> None:
    """DNS rebinding: a page of another site whose host name resolves to this machine."""
    reply = service.send("POST", DECIDE, VALID, Host=host)
    assert reply.status == 421
    assert reply.detail


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
@pytest.mark.parametrize("path", [DECIDE, f"{V1}/main/reset"])
def test_request_by_a_page_of_another_origin_is_refused(service: InThread, path: str, headers: dict[str, str]) -> None:
    """Cross-site request forgery: a form of another site needs no permission to be sent here."""
    reply = service.send("POST", path, VALID, **headers)
    assert reply.status == 403
    assert reply.detail


def test_links_from_other_sites_lead_to_the_pages(service: InThread) -> None:
    for path in ("/", "/playground"):
        assert service.get(path, **{"Sec-Fetch-Site": "cross-site"}).status == 200


def test_origin_must_equal_the_host(service: InThread) -> None:
    for host in ("127.0.0.1", "localhost"):
        own = f"{host}:{service.port}"
        assert service.get(V1, Host=own, Origin=f"http://{own}").status == 200
        for other in (f"http://{host}:{service.port + 1}", f"http://{host}", "null"):
            assert service.get(V1, Host=own, Origin=other).status == 403


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8765", "[::1]:8765"])
def test_names_of_this_machine_are_accepted(service: InThread, host: str) -> None:
    assert service.get("/health", Host=host).status == 200


def test_every_response_has_security_headers(service: InThread) -> None:
    for path in ("/health", "/nothing", "/"):
        headers = service.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert not any(name.startswith("access-control") for name in headers)


@pytest.mark.parametrize(("path", "body"), EVERY_SLOT)
def test_operations_of_every_slot_pass_all_checks(
    service: InThread, path: str, body: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    counts = service.service.request_metrics.requests
    assert service.post(path, body, Host="example.org").status == 421
    before = counts.get(("POST", 403), 0)
    caplog.clear()
    assert service.post(path, body, Origin="https://example.org").status == 403
    # Requests are counted, and then logged, after the client has the response.
    eventually(lambda: counts.get(("POST", 403), 0) == before + 1)
    refused = {"path": path, "status": 403}
    eventually(lambda: any(refused.items() <= vars(one).items() for one in caplog.records))
    assert service.post(path, body, Content_Type="text/plain").status == 415
    assert service.post(path, b"[" * 10**5).status in (400, 413)
    assert service.post(path, b"[" + b"1," * 10**5 + b"1]").status == 413
    assert service.post(f"{path}/", body).status == 404
    assert service.get(path).status == 405
    reply = service.post(path, b"{}")
    assert reply.status == 400
    assert reply.headers["cache-control"] == "no-store"
    if path.startswith(f"{V1}/"):
        assert "does not exist" in service.post(path.replace("main", "none"), body).detail


# --- authentication --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer ", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer a", f"Basic {TOKEN}", TOKEN,
     f"Bearer {TOKEN.upper()}", f"Bearer {TOKEN} {TOKEN}", "Bearer \xe9"],
)  # fmt: skip
def test_request_without_the_token_is_refused(protected: InThread, authorization: str) -> None:
    before = protected.state()
    for method, path, body in (
        *(("POST", path, body) for path, body in EVERY_SLOT),
        ("GET", f"{V1}/main", None), ("GET", "/metrics", None), ("POST", V1, NEW),
        ("GET", "/nothing", None),
    ):  # fmt: skip
        reply = protected.send(method, path, body, Authorization=authorization)
        assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer")
        assert TOKEN not in reply.detail
    assert protected.state() == before


def test_request_with_the_token_is_accepted(protected: InThread) -> None:
    assert protected.decide("accepted").status == 200
    assert protected.get(V1, Authorization=f"bearer  {TOKEN}").status == 200


def test_any_host_is_accepted_with_a_token(protected: InThread) -> None:
    """Behind a proxy the service has another name."""
    assert protected.get(V1, Host="example.org").status == 200


def test_health_and_pages_need_no_token(protected: InThread) -> None:
    for path in ("/health", "/", "/playground"):
        assert protected.get(path, Authorization="").status == 200


# --- bodies ----------------------------------------------------------------------------------------------------------


def head(path: str, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


def read_to_end(connection: socket.socket) -> bytes:
    """Read until the other side closes the connection."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            found += part
    return found


def send_chunks(connection: socket.socket, limit: int) -> int:
    """Send chunks until the other side closes the connection; return the number of bytes sent."""
    chunk, sent = b"10000\r\n" + b" " * 65536 + b"\r\n", 0
    with contextlib.suppress(ConnectionError):
        while sent < limit:
            connection.sendall(chunk)
            sent += len(chunk)
    return sent


@pytest.mark.parametrize("size", [2**30, 10**19])
def test_too_large_content_length_is_refused_before_the_body(service: InThread, size: int) -> None:
    with service.raw() as connection:
        connection.sendall(head(DECIDE, f"Content-Length: {size}"))
        assert read_to_end(connection).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(("path", "status"), [(DECIDE, b"413"), ("/nothing", b"404"), (f"{V1}/other/reset", b"404")])
def test_endless_body_is_refused_and_the_connection_closed(service: InThread, path: str, status: bytes) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with service.raw() as connection:
        connection.sendall(head(path, "Transfer-Encoding: chunked"))
        assert send_chunks(connection, 512 * 2**20) < 64 * 2**20  # the limit and the buffers of the sockets
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < 64 * 2**20
    with service.raw() as connection:  # without further data the response can be read
        connection.sendall(head(path, "Transfer-Encoding: chunked"))
        if status == b"413":
            send_chunks(connection, 4 * 2**20)
            connection.sendall(b"1\r\n \r\n")
        assert read_to_end(connection).startswith(b"HTTP/1.1 " + status)


def test_endless_body_without_the_token_is_refused_at_once(protected: InThread) -> None:
    with protected.raw() as connection:
        connection.sendall(head(DECIDE, "Transfer-Encoding: chunked"))
        assert read_to_end(connection).startswith(b"HTTP/1.1 401 ")


def test_body_that_ends_early_changes_nothing(service: InThread) -> None:
    before = service.state()
    with service.raw() as connection:
        connection.sendall(head(DECIDE, "Content-Length: 100") + b'{"request_id":')
    assert service.get("/health").status == 200
    assert service.state() == before


@pytest.mark.parametrize(
    "data", [b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", head(DECIDE, "Content-Length: -5")]
)
def test_data_that_is_not_http_is_refused(service: InThread, data: bytes) -> None:
    with service.raw() as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        assert read_to_end(connection)[:12] in (b"", b"HTTP/1.1 400")
    assert service.get("/health").status == 200


def test_connection_is_kept_after_a_refused_body_that_was_read(service: InThread) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=TIMEOUT)
    with contextlib.closing(connection):
        connection.connect()
        first = connection.sock
        for _ in range(2):
            connection.request("POST", DECIDE, b"{}", {"Content-Type": "application/json"})
            reply = connection.getresponse()
            assert (reply.status, reply.read() != b"") == (400, True)
            assert connection.sock is first


def test_slow_client_does_not_block_others(service: InThread) -> None:
    with service.raw() as slow:
        slow.sendall(head(DECIDE, "Content-Length: 100") + b"{")
        answered = threading.Event()
        threading.Thread(target=lambda: (service.get("/health"), answered.set())).start()
        assert answered.wait(TIMEOUT)


# --- limits ----------------------------------------------------------------------------------------------------------


def test_limits_on_bodies_and_connections(tmp_path: Path) -> None:
    limit = 1000
    with in_thread(tmp_path, limits=Limits(body=limit, connections=4)) as running:
        body = json.dumps(VALID).encode()
        assert running.post(DECIDE, body + b" " * (limit - len(body))).status == 200
        reply = running.post(DECIDE, body + b" " * (limit - len(body) + 1))
        assert (reply.status, str(limit) in reply.detail) == (413, True)


def kept_connection(service: InThread, path: str = V1) -> http.client.HTTPConnection:
    """Return a connection that is kept open after one request."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=TIMEOUT)
    headers = {} if service.token is None else {"Authorization": f"Bearer {service.token}"}
    connection.request("GET", path, headers=headers)
    connection.getresponse().read()
    return connection


@pytest.mark.parametrize("token", [None, TOKEN])
def test_connections_above_the_limit_are_refused(tmp_path: Path, token: str | None) -> None:
    with in_thread(tmp_path, token=token, limits=Limits(connections=4)) as running, contextlib.ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(contextlib.closing(kept_connection(running)))
        reply = running.get(V1)
        assert (reply.status, reply.headers["retry-after"], reply.headers["connection"]) == (503, "1", "close")
        assert reply.detail == "connections: all places are taken, or all of this address"
        assert running.get("/health").status == 200  # needs no place
        stack.close()
        eventually(lambda: running.get(V1).status == 200)


@pytest.mark.parametrize("begin", [b"", b"GET /v1", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_connections_without_a_token_do_not_keep_out_others(tmp_path: Path, begin: bytes) -> None:
    with in_thread(tmp_path, token=TOKEN, limits=Limits(connections=20)) as running, contextlib.ExitStack() as stack:
        first = stack.enter_context(contextlib.closing(kept_connection(running)))
        idle = [stack.enter_context(running.raw()) for _ in range(60)]
        for raw in idle:
            with contextlib.suppress(ConnectionError):  # it may have been closed for a newer one
                raw.sendall(begin)
        assert running.decide("other").status == 200
        first.request("GET", V1, headers={"Authorization": f"Bearer {TOKEN}"})  # its connection was not closed
        assert first.getresponse().status == 200
        assert read_to_end(idle[0]).endswith(b'before"}')


def test_x_forwarded_for_is_trusted_only_from_a_proxy(tmp_path: Path) -> None:
    def statuses(running: InThread) -> set[int]:
        return {running.get("/health", X_Forwarded_For=f"10.0.0.{i}").status for i in range(20)}

    with in_thread(tmp_path / "direct", limits=Limits(rate=1)) as running:
        assert statuses(running) == {200, 429}
    with in_thread(tmp_path / "proxy", limits=Limits(rate=1, proxies=("127.0.0.1",))) as running:
        assert statuses(running) == {200}


def test_requests_above_the_rate_are_refused(tmp_path: Path) -> None:
    with in_thread(tmp_path, limits=Limits(rate=1)) as running:
        assert running.decide("often").status == 200
        refused = eventually(lambda: reply if (reply := running.decide("often")).status != 200 else None)
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert refused.detail
        eventually(lambda: running.decide("often").status == 200)  # later requests are accepted at the rate
