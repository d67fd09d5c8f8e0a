"""Identifiers of HTTP requests: accepted where they are well-formed, returned, and in the log."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.running import NEW, V1, InThread, as_command, in_thread

TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE}-b7ad6b7169203331-01"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InThread]:
    with in_thread(tmp_path_factory.mktemp("ids")) as running:
        yield running


def identifier(service: InThread, path: str = "/health", **headers: str) -> str:
    return service.get(path, **headers).headers["x-request-id"]


@pytest.mark.parametrize("given", ["a", "A-b_c.1:2", "x" * 64, "0b2b6a2e-7d0c-4e0f-9c4c-3d1f6e1c2a10"])
def test_identifier_of_the_client_is_returned(service: InThread, given: str) -> None:
    assert identifier(service, X_Request_Id=given) == given
    assert identifier(service, X_Request_Id=given, traceparent=TRACEPARENT) == given


def test_trace_id_is_used_where_there_is_no_identifier(service: InThread) -> None:
    assert identifier(service, traceparent=TRACEPARENT) == TRACE


BAD = [
    {"X_Request_Id": ""}, {"X_Request_Id": "x" * 65}, {"X_Request_Id": "a b"}, {"X_Request_Id": "\xe9"},
    {"X_Request_Id": '"'}, {"traceparent": ""}, {"traceparent": TRACEPARENT.upper()},
    {"traceparent": f"{TRACEPARENT}x"},
    {"traceparent": TRACEPARENT.replace(TRACE, "0" * 32)}, {"traceparent": f"ff{TRACEPARENT[2:]}"},
    {"traceparent": f"00-{TRACE}-{'0' * 16}-01"}, {},
]  # fmt: skip


@pytest.mark.parametrize("headers", BAD)
def test_others_are_replaced_by_a_new_one(service: InThread, headers: dict[str, str]) -> None:
    first, second = identifier(service, **headers), identifier(service, **headers)
    assert first != second
    assert first.split("-")[0] == second.split("-")[0]
    assert len(first) < 30


def test_refusals_have_an_identifier_too(service: InThread) -> None:
    for path in ("/nothing", f"{V1}/none", f"{V1}/main/decide", "/"):
        assert identifier(service, path, X_Request_Id="mine") == "mine"
    assert service.get("/health", Host="other", X_Request_Id="mine").headers["x-request-id"] == "mine"


def test_lines_of_the_log_contain_the_identifier(tmp_path: Path) -> None:
    with as_command(tmp_path / "data", *NEW) as service:
        assert service.post(f"{V1}/main/decide", b"{", X_Request_Id="first").status == 400
        assert service.send("PATCH", f"{V1}/main", {"patience": 5}, X_Request_Id="second").status == 200
        service.end()
        found = {(line["event"], line.get("http_request_id")) for line in service.log_lines}
    assert {("request refused", "first"), ("allocator changed", "second"), ("service stopped", None)} <= found
