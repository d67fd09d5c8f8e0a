"""Tokens of the service and their roles, from a file that is read again when it changes.

Each role may do what the ones before it may. Tokens are compared by their SHA-256 digests, so that the time that a
comparison takes says nothing about a token, and a file may contain digests instead of tokens.
"""

import hashlib
import hmac
import logging
import os
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from idleband.errors import InputError, shown

PUBLIC, READ, OPERATE, ADMINISTER = range(4)
ROLES = ("none", "read", "operate", "administer")  # names of the numbers above
TOKEN = "idleband.token"  # key in a scope: the `Token` of the request, absent if the service has none
MIN_LENGTH = 16  # characters of a token
MAX_TOKENS = 1000
REFRESH_INTERVAL = 1.0  # seconds between two looks at the file
DIGEST = "sha256:"

log = logging.getLogger("idleband.service")


@dataclass(eq=False)
class Token:
    """A token with its role."""

    name: str  # for the log
    role: int
    digest: bytes
    revoked: bool = False  # whether it was removed from the file; streams that it opened end
    plain: str = field(default="", repr=False)  # the token itself, if it is known


class Tokens:
    """The tokens that a service accepts."""

    def __init__(self, tokens: Iterable[Token]) -> None:
        self._tokens = {one.digest: one for one in tokens}

    @classmethod
    def single(cls, token: str) -> "Tokens":
        """Return one token, which may do everything."""
        return cls([Token("token", ADMINISTER, _digest(token), plain=token)])

    def find(self, token: bytes) -> Token | None:
        """Return the token that was sent, or None if it is not accepted."""
        digest = hashlib.sha256(token).digest()
        found = self._tokens.get(digest)
        return found if found is not None and hmac.compare_digest(found.digest, digest) else None

    def add_own(self, name: str, role: int) -> str:
        """Return a new token for a part of the service itself. It is accepted until the process ends."""
        token = secrets.token_urlsafe(32)
        self._tokens[_digest(token)] = Token(name, role, _digest(token))
        return token

    def plain(self, role: int) -> str | None:
        """Return a token with at least this role, if one is known that is more than a digest."""
        return next((one.plain for one in self._tokens.values() if one.plain and one.role >= role), None)

    def refresh(self) -> None:
        """Read the file again if it has changed."""


class TokenFile(Tokens):
    """The tokens of a file. A changed file that is invalid is reported in the log, and the tokens stay as they were."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._state = self._stat()
            super().__init__(_read(path))
        except OSError as error:
            raise InputError(f"--token-file {path}: {error.strerror or error}") from None
        self._in_file = dict(self._tokens)

    def _stat(self) -> tuple[int, ...]:
        found = os.stat(self._path)
        return found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode

    def refresh(self) -> None:
        try:
            state: tuple[int, ...] = self._stat()
        except OSError:
            state = ()
        if state == self._state:
            return
        self._state = state
        try:
            found = {one.digest: one for one in _read(self._path)}
        except (InputError, OSError) as error:
            log.error("tokens not read again; the earlier ones stay", extra={"reason": str(error)})
            return
        before = self._in_file
        for digest, one in found.items():  # streams continue whose token is still there
            earlier = before.get(digest)
            if earlier is not None and (earlier.name, earlier.role) == (one.name, one.role):
                found[digest] = earlier
        for digest, one in before.items():
            one.revoked = found.get(digest) is not one
        own = {digest: one for digest, one in self._tokens.items() if digest not in before}
        self._tokens, self._in_file = {**found, **own}, found
        revoked = sorted(one.name for one in before.values() if one.revoked)
        log.info("tokens read again", extra={"tokens": len(found), "revoked": revoked})


def read_tokens(path: str | None) -> Tokens | None:
    """Return the tokens of a file, or the one in IDLEBAND_TOKEN; None if neither is given.

    There is no option for a token itself, because other users of the machine can see command lines.
    """
    if path is not None:
        return TokenFile(Path(path))
    token = os.environ.get("IDLEBAND_TOKEN")
    if token is None:
        return None
    if not _is_token(token):
        raise InputError(f"IDLEBAND_TOKEN: {_REQUIREMENT}")
    return Tokens.single(token)


_REQUIREMENT = f"a token must have at least {MIN_LENGTH} printable ASCII characters and no space"


def _read(path: Path) -> list[Token]:
    """Return the tokens of a file: one alone, or lines of name, role and token."""
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        raise InputError(f"--token-file {path}: is not a text file") from None
    lines = [(number, line.split()) for number, line in enumerate(text.splitlines(), 1)]
    if not any(len(words) == 3 for _, words in lines):
        if not _is_token(text.strip()):
            raise InputError(f"{path}: {_REQUIREMENT}; several tokens are lines of NAME ROLE TOKEN")
        if os.stat(path).st_mode & 0o006:
            log.warning("token file is open to other users", extra={"file": str(path), "advice": "chmod 600"})
        return [Token("token", ADMINISTER, _digest(text.strip()), plain=text.strip())]
    found: dict[str, Token] = {}
    only_digests = True
    for number, words in lines:
        if words and not words[0].startswith("#"):
            try:
                token = _token_of(words)
            except InputError as error:
                raise InputError(f"{path}: line {number}: {error}") from None
            if token.name in found or any(token.digest == one.digest for one in found.values()):
                raise InputError(f"{path}: line {number}: the name {token.name}, or its token, is there twice")
            found[token.name] = token
            only_digests = only_digests and words[-1].startswith(DIGEST)
    if len(found) > MAX_TOKENS:
        raise InputError(f"{path}: has {len(found)} tokens; must have at most {MAX_TOKENS}")
    _check_permissions(path, only_digests)
    return list(found.values())


def _token_of(words: list[str]) -> Token:
    """Return the token of a line. Messages do not contain it."""
    if len(words) != 3:
        raise InputError("must be NAME ROLE TOKEN")
    name, role, token = words
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}", name):
        raise InputError(f"name = {shown(name)}: must be 1 to 80 letters, digits or . _ -, a letter or digit first")
    if role not in ROLES[1:]:
        raise InputError(f"role = {shown(role)}: must be one of {', '.join(ROLES[1:])}")
    if token.startswith(DIGEST):
        if not re.fullmatch(r"[0-9a-f]{64}", token.removeprefix(DIGEST)):
            raise InputError(f"token: must have 64 digits 0-9 a-f after {DIGEST}")
        return Token(name, ROLES.index(role), bytes.fromhex(token.removeprefix(DIGEST)))
    if not _is_token(token):
        raise InputError(_REQUIREMENT)
    return Token(name, ROLES.index(role), _digest(token), plain=token)


def _check_permissions(path: Path, only_digests: bool) -> None:
    mode = os.stat(path).st_mode
    if mode & 0o022:
        raise InputError(f"{path}: can be written by other users; chmod 600 {path}")
    if mode & 0o004 and not only_digests:
        raise InputError(f"{path}: contains tokens and can be read by all users; chmod 600 {path}")


def _is_token(token: str) -> bool:
    return len(token) >= MIN_LENGTH and token.isascii() and token.isprintable() and " " not in token


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
