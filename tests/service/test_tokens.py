"""Tokens: the file, its permissions, roles of every route, and rotation without a restart."""

import hashlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.routing import Mount, Route

from idleband.errors import InputError
from idleband.service.app import PAGES
from idleband.service.client import Client
from idleband.service.tokens import ADMINISTER, OPERATE, PUBLIC, READ, ROLES, TokenFile, Tokens, read_tokens
from tests.service.running import V1, D, InThread, K, decide_body, eventually, in_thread

TOKEN = "a-token-of-the-tests"
TOKENS = {role: f"the-token-to-{role}-with" for role in ROLES[1:]}


def token_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    """Write a file as it is when it replaces an earlier one."""
    new = folder / "tokens.new"
    new.write_text(text)
    new.chmod(mode)
    return new.replace(folder / "tokens")


def role_of(tokens: Tokens | None, token: str) -> str | None:
    found = None if tokens is None else tokens.find(token.encode())
    return None if found is None else ROLES[found.role]


# --- the file --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "token",
    ["", "short", "x" * 15, "with a space in it", "a-tokèn-of-the-tests", "two-lines-of-\ntokens", "a\ttab-of-tests"],
)  # fmt: skip
def test_invalid_token_is_refused_and_not_shown(token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = token_file(tmp_path, token)
    with pytest.raises(InputError, match=f"{file}: a token must have") as error:
        read_tokens(str(file))
    assert not token or token not in str(error.value).replace(str(file), "")
    monkeypatch.setenv("IDLEBAND_TOKEN", token)
    with pytest.raises(InputError, match="IDLEBAND_TOKEN: a token must have"):
        read_tokens(None)


def test_single_token_administers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In a file, which other users can read at a warning, or in the environment."""
    monkeypatch.delenv("IDLEBAND_TOKEN", raising=False)
    assert read_tokens(None) is None
    monkeypatch.setenv("IDLEBAND_TOKEN", "from-the-environment")
    assert role_of(read_tokens(None), "from-the-environment") == "administer"
    for mode, warnings in ((0o600, 0), (0o644, 1)):
        tokens = read_tokens(str(token_file(tmp_path, f"\n{TOKEN}\n", mode)))
        assert role_of(tokens, TOKEN) == "administer"
        assert role_of(tokens, f"{TOKEN}x") is None
        assert sum("open to other users" in one.message for one in caplog.records) == warnings
    for wrong in (tmp_path, tmp_path / "none"):
        with pytest.raises(InputError, match="--token-file"):
            read_tokens(str(wrong))
    (tmp_path / "binary").write_bytes(b"\xff\xfe" * 20)
    with pytest.raises(InputError, match="--token-file"):
        read_tokens(str(tmp_path / "binary"))


def test_lines_of_name_role_and_token_or_digest(tmp_path: Path) -> None:
    digest = hashlib.sha256(TOKENS["operate"].encode()).hexdigest()
    text = f"# our tokens\n\ndashboard read {TOKENS['read']}\nstation-1\toperate  sha256:{digest}\n"
    tokens = TokenFile(token_file(tmp_path, text))
    assert role_of(tokens, TOKENS["read"]) == "read"
    assert role_of(tokens, TOKENS["operate"]) == "operate"
    for other in ("", TOKENS["administer"], digest, f"sha256:{digest}", TOKENS["read"].upper()):
        assert role_of(tokens, other) is None
    assert role_of(TokenFile(token_file(tmp_path, f"station-1 operate sha256:{digest}", 0o644)), TOKENS["operate"])


REFUSED = {
    "an unknown role": (f"a reader {TOKEN}", "line 1: role = 'reader': must be one of read, operate, administer"),
    "a short token": ("# \na read short", "line 2: a token must have at least 16"),
    "a missing word": (f"a read {TOKEN}\nb {TOKEN}", "line 2: must be NAME ROLE TOKEN"),
    "a bad name": (f"../a read {TOKEN}", "line 1: name = '../a'"),
    "a bad digest": ("a read sha256:0123456789abcdef", "line 1: token: must have 64 digits 0-9 a-f after sha256:"),
    "a name twice": (f"a read {TOKEN}\na read {TOKEN}x", "line 2: the name a, or its token, is there twice"),
    "a token twice": (f"a read {TOKEN}\nb read {TOKEN}", "line 2: the name b, or its token, is there twice"),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_invalid_lines_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        TokenFile(token_file(tmp_path, text))
    assert message in str(error.value)
    assert TOKEN not in str(error.value)


@pytest.mark.parametrize(("mode", "message"), [(0o644, "can be read by all users"), (0o620, "can be written")])
def test_file_of_roles_must_not_be_open_to_others(tmp_path: Path, mode: int, message: str) -> None:
    with pytest.raises(InputError, match=f"{message}.*; chmod 600"):
        TokenFile(token_file(tmp_path, f"a read {TOKEN}", mode))


# --- rotation --------------------------------------------------------------------------------------------------------


def test_changed_file_is_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    tokens = TokenFile(token_file(tmp_path, f"a read {TOKENS['read']}\nb operate {TOKENS['operate']}"))
    own = tokens.add_own("station", OPERATE)
    kept, removed = (tokens.find(TOKENS[role].encode()) for role in ("read", "operate"))
    assert kept is not None
    assert removed is not None
    token_file(tmp_path, f"a read {TOKENS['read']}\nc administer {TOKENS['administer']}")
    tokens.refresh()
    assert [role_of(tokens, one) for one in (*TOKENS.values(), own)] == ["read", None, "administer", "operate"]
    assert tokens.find(TOKENS["read"].encode()) is kept
    assert (kept.revoked, removed.revoked) == (False, True)
    assert [vars(one)["revoked"] for one in caplog.records] == [["b"]]
    for spoil in (lambda: token_file(tmp_path, "short"), lambda: os.unlink(tmp_path / "tokens")):
        spoil()
        caplog.clear()
        tokens.refresh()
        tokens.refresh()
        assert [one.message for one in caplog.records] == ["tokens not read again; the earlier ones stay"]
        assert role_of(tokens, TOKENS["administer"]) == "administer"
    token_file(tmp_path, f"a operate {TOKENS['read']}")
    tokens.refresh()
    assert (role_of(tokens, TOKENS["read"]), role_of(tokens, TOKENS["administer"]), kept.revoked) == (
        "operate", None, True,
    )  # fmt: skip


def test_service_rotates_tokens_under_its_clients(tmp_path: Path) -> None:
    """It looks at the file each second. A stream ends when its token is removed."""
    tokens = TokenFile(token_file(tmp_path, f"a operate {TOKENS['operate']}\nb read {TOKENS['read']}"))
    with in_thread(tmp_path / "data", tokens=tokens) as service:
        url = f"http://127.0.0.1:{service.port}"
        with (
            service.raw() as stream,
            Client(url, token=TOKENS["operate"]) as first,
            Client(url, token=TOKENS["administer"]) as second,
        ):
            head = f"GET {V1}/main/watch HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {TOKENS['read']}\r\n\r\n"
            stream.sendall(head.encode())
            assert stream.recv(65536).startswith(b"HTTP/1.1 200")
            assert first.decide([[0.5] * D] * K).slot == 1
            with pytest.raises(InputError, match="Authorization"):
                second.status()
            token_file(tmp_path, f"c administer {TOKENS['administer']}")
            eventually(lambda: service.get(V1, Authorization=f"Bearer {TOKENS['operate']}").status == 401)
            assert second.decide([[0.5] * D] * K).slot == 2
            with pytest.raises(InputError, match="Authorization"):
                first.status()
            found = b""
            while not found.endswith(b"0\r\n\r\n"):
                found += stream.recv(65536)


# --- roles -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InThread]:
    folder = tmp_path_factory.mktemp("roles")
    text = "".join(f"{role} {role} {token}\n" for role, token in TOKENS.items())
    with in_thread(folder / "data", tokens=TokenFile(token_file(folder, text))) as running:
        yield running


EXPECTED = {
    PUBLIC: ["health"],
    READ: ["metrics", "openapi", "list_allocators", "status", "explain", "watch", "playground_options"],
    OPERATE: ["decide", "report", "step", "steps", "vacate", "restore", "reset", "playground_run"],
    ADMINISTER: ["create", "change", "delete"],
}


def test_every_route_is_an_operation_with_a_role_or_a_page(service: InThread) -> None:
    operations = service.service.operations()
    found = {role: [one.handler.__name__ for one in operations if one.role == role] for role in range(len(ROLES))}
    assert {role: sorted(names) for role, names in found.items()} == {r: sorted(n) for r, n in EXPECTED.items()}
    with_roles = {(one.method, one.path) for one in operations}
    for one in service.service.routes:
        if isinstance(one, Mount):
            assert one.path == "/static"
        elif isinstance(one, Route) and one.path not in ("/", "/playground"):
            assert {(method, one.path) for method in one.methods or () if method != "HEAD"} <= with_roles
    assert {path.suffix for path in PAGES.iterdir()} <= {".html", ".js", ".css", ".svg"}


def test_each_operation_needs_its_role(service: InThread) -> None:
    """Also the operations that bypass the router. Without the role nothing is looked at, changed or found."""
    before = service.state()
    for one in service.service.operations():
        path = one.path.replace("{name}", "main")
        for role, token in TOKENS.items():
            if ROLES.index(role) < one.role:
                reply = service.send(one.method, path, b"{", Authorization=f"Bearer {token}")
                assert (reply.status, reply.detail) == (
                    403, f"token: has the role {role}; {one.method} {one.path} needs {ROLES[one.role]}",
                )  # fmt: skip
                missing = one.path.replace("{name}", "none")
                assert service.send(one.method, missing, b"{", Authorization=f"Bearer {token}").status == 403
        if one.role > PUBLIC:
            assert service.send(one.method, path).status == 401
    assert service.state() == before


def test_role_suffices_for_its_operations(service: InThread) -> None:
    read, operate, administer = (f"Bearer {token}" for token in TOKENS.values())
    for path in (V1, f"{V1}/main", "/metrics", "/openapi.json", "/health", "/v1/playground/options", "/"):
        for authorization in (read, operate, administer):
            assert service.get(path, Authorization=authorization).status == 200
    for authorization in (operate, administer):
        assert service.post(f"{V1}/main/decide", decide_body("r1"), Authorization=authorization).status == 200
        steps = {"steps": [{"name": "main", "decide": decide_body("r1")}]}
        assert service.post("/v1/steps", steps, Authorization=authorization).status == 200
    new = {"name": "other", "policy": "mp-ucb", "channels": K, "users": 2, "dimension": D}
    assert service.post(V1, new, Authorization=administer).status == 200
    assert service.send("DELETE", f"{V1}/other", Authorization=administer).status == 200


def test_roles_are_in_the_document(service: InThread) -> None:
    document = service.get("/openapi.json", Authorization=f"Bearer {TOKENS['read']}").data
    found = {
        one["operationId"]: (one["x-role"], one["security"])
        for methods in document["paths"].values()
        for one in methods.values()
    }
    assert found["health"] == ("none", [])
    assert found["status"] == ("read", [{"token": ["read"]}])
    assert found["delete"] == ("administer", [{"token": ["administer"]}])


def test_refusals_name_the_token_in_the_log(service: InThread, caplog: pytest.LogCaptureFixture) -> None:
    service.send("DELETE", f"{V1}/main", Authorization=f"Bearer {TOKENS['operate']}")
    eventually(lambda: [one for one in caplog.records if vars(one).get("token") == "operate"])
    assert not any(token in str(vars(one)) for one in caplog.records for token in TOKENS.values())
