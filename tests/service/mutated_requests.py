"""Mutated requests: valid ones of every operation, changed at random, as the bytes that are sent.

The tests send a few hundred of them and `studies/mutated_requests.py` 10,000.
"""

import json
import random
import re
import select
import socket
import time
from typing import Any, NamedTuple

V1 = "/v1/allocators"
K, M, D = 6, 3, 2  # sizes of the allocator that the requests are for

ODD_VALUES: list[Any] = [
    None, True, False, 0, -1, 1.5, 2**31, 2**53, 2**63, 10**30, -0.0, 1e308, -1e-320, "", "a", "ä\u0000\n", "x" * 3000,
    "\ud800", [], {}, [[]], [None], [[], []], {"": None}, {"0": 1.0}, [1.0] * 200, [[0.5] * D] * K, "main", "r1",
]  # fmt: skip
ODD_BYTES = [
    b"", b"\0", b"\r\n", b"\r\n\r\n", b"NaN", b"1e999", b"Infinity", b"[" * 2000, b'{"a":' * 500, b"\xff\xfe",
    b"\xf0\x9f\x99", b"9" * 5000, b"-", b'"', b",", b"{}", b"\\u0000", b"0x1", b" " * 2000, b"HTTP/1.1",
    b"GET / HTTP/1.1\r\n\r\n",
]  # fmt: skip
METHODS = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "CONNECT", "TRACE", "PATCH", "get", "FOO"]
PATHS = [
    "/", "*", "//", "/..%2f..%2fetc/passwd", "/static/..", f"{V1}/%00", f"{V1}/main/watch/..", f"{V1}//decide",
    "/%ff%fe", "http://other/health", f"{V1}/main/explain?request_id=%",
    f"{V1}/main/explain?request_id=r1&request_id=r2",
    "/v1/playground/run?settings=%7B%22a%22:1%7D", "/v1/playground/run?settings=" + "[" * 1000,
    "/health?" + "a=b&" * 500, "/" + "a" * 5000, "/metrics/", "/openapi.json?x",
]  # fmt: skip
HEADERS = [
    "Content-Length: 0", "Content-Length: 5", "Content-Length: 99999999999999999999", "Content-Length: -1",
    "Content-Length: x", "Transfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked", "Expect: 100-continue",
    "Connection: close",
    "Connection: upgrade\r\nUpgrade: websocket", "Upgrade: h2c", "Content-Type: text/plain", "Content-Encoding: gzip",
    "Host: other", "Host: localhost, other", "Origin: https://other", "X-Forwarded-For: 1.2.3.4",
    "Authorization: Bearer", "Authorization: Basic \xff", "Range: bytes=0-1", "X: " + "a" * 70_000,
    "A: b\r\n" * 300 + "C: d",
    "Bad Header: 1", ": 1", "X-A:\tb\x0bc", "If-None-Match: *", "Accept-Encoding: *;q=0",
    "X-Request-Id: " + "a" * 65, "X-Request-Id: \xff\"", "traceparent: 00-" + "0" * 32 + "-" + "1" * 16 + "-01",
    "Sec-Fetch-Site: cross-site", "Cookie: " + ";" * 1000,
]  # fmt: skip


class Outcome(NamedTuple):
    """What came back for a request."""

    statuses: list[int]  # several where the mutation made several requests
    ended: bool  # whether there was a response, or the connection was closed, in time
    found: bytes


class Mutations:
    """Random requests. The same seed gives the same requests."""

    def __init__(self, seed: int, token: str) -> None:
        self._random, self._token, self._count = random.Random(seed), token, 0

    def request(self) -> bytes:
        """Return the next request."""
        rng = self._random
        method, path, body = self._valid()
        headers = ["Host: localhost", f"Authorization: Bearer {self._token}"]
        data = b""
        if body is not None:
            for _ in range(rng.choice((0, 1, 1, 2))):
                body = self._changed_value(body)
            data = json.dumps(body).encode()
            if rng.random() < 0.3:
                data = self._changed_bytes(data)
            headers.append("Content-Type: application/json")
            headers.append(f"Content-Length: {len(data)}")
        if rng.random() < 0.1:
            method = rng.choice(METHODS)
            if method == "DELETE":  # the first allocator stays
                path = path.replace("/main", "/second")
        if rng.random() < 0.1:
            path = rng.choice(PATHS)
        if rng.random() < 0.2:
            headers.insert(rng.randrange(len(headers) + 1), rng.choice(HEADERS))
        if rng.random() < 0.05:
            headers.pop(rng.randrange(len(headers)))
        lines = [f"{method} {path} HTTP/1.1", *headers, "", ""]
        sent = "\r\n".join(lines).encode("latin-1") + data
        if rng.random() < 0.1:
            sent = self._changed_bytes(sent)
        return sent * rng.choice((1, 1, 1, 1, 2, 20)) if len(sent) < 5000 else sent

    def _valid(self) -> tuple[str, str, Any]:
        """Return method, path and body of a valid request."""
        rng = self._random
        self._count += 1
        request_id = f"r{self._count}" if rng.random() < 0.7 else f"r{rng.randint(1, self._count)}"
        contexts = [[round(rng.random(), 3) for _ in range(D)] for _ in range(K)]
        decide: dict[str, Any] = {"request_id": request_id, "contexts": contexts}
        options: dict[str, Any] = {
            "users": M, "available": [True] * K, "states": [0, 1, None] * (K // 3), "slot": None,
            "incumbent": [0, "ch2"],
        }  # fmt: skip
        decide |= {key: value for key, value in options.items() if rng.random() < 0.3}
        report = {"request_id": request_id, "rewards": [1.0] * M, "states": {"0": 1}}
        # For another decision than its own, perhaps one that does not exist.
        step = {"report": {**report, "request_id": f"r{rng.randint(1, self._count)}"}, "decide": decide}
        steps = {"steps": [{"name": "main", **step}, {"name": rng.choice(("main", "other")), "decide": decide}]}
        new = {
            "name": "main",
            "policy": "mp-ucb",
            "channels": K,
            "users": M,
            "dimension": D,
            "seed": 1,
            "rewards": [0, 1],
        }
        channels = {"channels": [rng.randrange(K), "ch1"]}
        # Another allocator is created, renamed and deleted; only the settings of the first one change.
        name = rng.choice(("second", "third"))
        change = {"patience": rng.randint(500, 1000), "deadline": None, "collision_limit": 1.0}
        rename = {"name": rng.choice(("second", "third")), "channel_names": None, **change}
        return rng.choice(
            [
                ("POST", f"{V1}/main/decide", decide), ("POST", f"{V1}/main/decide", decide),
                ("POST", f"{V1}/main/report", report), ("POST", f"{V1}/main/report", report), ("POST", V1, new),
                ("POST", f"{V1}/main/step", step), ("POST", f"{V1}/main/step", step), ("POST", "/v1/steps", steps),
                ("POST", f"{V1}/main/vacate", channels), ("POST", f"{V1}/main/restore", channels),
                ("PATCH", f"{V1}/main", change), ("PATCH", f"{V1}/{name}", rename),
                ("DELETE", f"{V1}/{name}?number={rng.randint(1, 9)}", None), ("DELETE", f"{V1}/{name}", None),
                ("POST", V1, {**new, "name": name}), ("POST", f"{V1}/{name}/decide", decide),
                ("POST", f"{V1}/main/reset", {}), ("GET", f"{V1}/main", None), ("GET", V1, None),
                ("GET", "/metrics", None), ("GET", f"{V1}/main/explain?request_id={request_id}", None),
                ("GET", "/health", None),
                ("GET", "/", None), ("GET", f"{V1}/main/watch", None), ("GET", "/v1/playground/options", None),
            ]
        )  # fmt: skip

    def _changed_value(self, value: Any) -> Any:
        """Return JSON data in which one value, somewhere, is replaced, removed, added or repeated."""
        rng = self._random
        if isinstance(value, dict) and value and rng.random() < 0.9:
            key = rng.choice(list(value))
            if rng.random() < 0.6:
                return {**value, key: self._changed_value(value[key])}
            return rng.choice([
                lambda: {k: v for k, v in value.items() if k != key},
                lambda: {**value, rng.choice(["x", "", "request_id", "0", "ch1", key * 2]): rng.choice(ODD_VALUES)},
            ])()  # fmt: skip
        if isinstance(value, list) and value and rng.random() < 0.8:
            at = rng.randrange(len(value))
            changed = rng.choice([
                lambda: [self._changed_value(value[at])], lambda: [], lambda: [value[at]] * 2,
                lambda: [value[at], rng.choice(ODD_VALUES)],
            ])()  # fmt: skip
            return [*value[:at], *changed, *value[at + 1 :]]
        return rng.choice(ODD_VALUES)

    def _changed_bytes(self, data: bytes) -> bytes:
        """Return data with one to four changes of bytes."""
        rng = self._random
        for _ in range(rng.randint(1, 4)):
            at, length = rng.randrange(len(data) + 1), rng.choice((1, 1, 2, 10, 100))
            kind = rng.randrange(5)
            if kind == 0:
                data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
            elif kind == 1:
                data = data[:at] + data[at + length :]
            elif kind == 2:
                data = data[:at] + rng.choice(ODD_BYTES) + data[at:]
            elif kind == 3:
                data = data[:at] + data[at : at + length] * 3 + data[at + length :]
            else:
                data = data[:at]
        return data


def send(port: int, data: bytes, timeout: float) -> Outcome:
    """Send data over a new connection; return what comes back until the connection is quiet or closed.

    A request that is incomplete gets no response. Its connection is then half-closed, whereupon the service closes it.
    """
    found, closed, half_closed, until = b"", False, False, time.monotonic() + timeout
    with socket.create_connection(("127.0.0.1", port), timeout=timeout) as raw:
        try:
            raw.sendall(data)
            while not closed and time.monotonic() < until:
                wait = 0.02 if found else until - time.monotonic() if half_closed else 0.1
                if select.select([raw], [], [], wait)[0]:
                    part = raw.recv(65536)
                    found, closed = found + part, not part
                elif found:
                    break
                elif not half_closed:
                    raw.shutdown(socket.SHUT_WR)
                    half_closed = True
        except ConnectionError:  # closed by the service before everything was sent
            closed = True
    statuses = [int(status) for status in re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", found)]
    return Outcome(statuses, bool(found) or closed, found)
