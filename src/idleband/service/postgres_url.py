"""Addresses of PostgreSQL databases. They are shown without user, password and options."""

from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

from idleband.errors import InputError

SCHEMES = ("postgresql://", "postgres://")
FORM = "postgresql://USER@HOST:PORT/DATABASE"


class PostgresUrl:
    """The address of a database, such as postgresql://user:password@host:5432/database.

    `dsn` is the whole address; `str` and `repr` leave out what is secret.
    """

    def __init__(self, dsn: str) -> None:
        try:
            import asyncpg  # noqa: F401  # whatever uses the address needs it
        except ImportError:
            raise InputError("--data postgresql://...: needs asyncpg; pip install 'idleband[postgres]'") from None
        self.dsn = dsn
        malformed = InputError(f"--data: must be like {FORM}; special characters in a password are written as %XX")
        try:
            parts = urlsplit(dsn)
            host, port, given = parts.hostname, parts.port, parse_qs(parts.query)
        except ValueError:  # whose message may quote the password
            raise malformed from None
        self.database = parts.path.removeprefix("/")
        if not self.database or "/" in self.database or parts.fragment or dsn.count("@") > 1:
            raise malformed
        passwords = [parts.password or "", *given.get("password", [])]
        self._secrets = {form for one in passwords if one for form in (one, unquote(one), quote(unquote(one), safe=""))}
        where = (f"[{host}]" if ":" in host else host) if host else ""
        self._shown = f"postgresql://{where}{f':{port}' if port else ''}/{unquote(self.database)}"

    def without_secrets(self, text: str) -> str:
        """Return a text of one line in which the password does not occur."""
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        return " ".join(text.split())

    def __str__(self) -> str:
        return self._shown

    __repr__ = __str__


def journal_place(text: str) -> Path | PostgresUrl:
    """Return where a journal is: a folder, or a database."""
    if text.startswith(SCHEMES):
        return PostgresUrl(text)
    if "://" in text:
        raise InputError(f"--data: must be a folder, or {FORM}")
    return Path(text)
