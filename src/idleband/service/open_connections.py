"""Which connections stay open: those of authenticated clients first, and so many per address.

A connection waits until one of its requests is authenticated or, in a service without a token, passes the check of the
origin. If too many wait, those that have waited longest are closed. Connections without a token can therefore not keep
out a client that sends its request soon after it has connected. An admitted connection is not closed for another one;
when there are no places left, the request that would be admitted is refused.
"""

import ipaddress
from typing import Protocol

from idleband.service.limits import Limits

MIN_WAITING = 16  # connections that may wait, however many are admitted
ADMIT = "idleband.admit"  # key in a scope: a function that returns whether the connection of the request may stay


class Connection(Protocol):
    """What is needed of a connection."""

    def evict(self) -> None:
        """Close the connection for another one."""


class OpenConnections:
    """The open connections of one service."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._proxies = tuple(ipaddress.ip_network(proxy) for proxy in limits.proxies)
        self._waiting: dict[Connection, str] = {}  # with addresses, oldest first
        self._admitted: dict[Connection, str] = {}
        self._waiting_at: dict[str, dict[Connection, None]] = {}  # by address, oldest first
        self._admitted_at: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._waiting) + len(self._admitted)

    def add(self, connection: Connection, address: str) -> None:
        """Add a new connection, which waits, and close another one if too many do."""
        if self._is_proxy(address):
            address = ""  # its clients share it
        self._waiting[connection] = address
        same = self._waiting_at.setdefault(address, {})
        same[connection] = None
        if address and len(same) > self._limits.per_address:
            self._evict(next(iter(same)))
        while len(self._waiting) > max(MIN_WAITING, self._limits.connections - len(self._admitted)):
            self._evict(next(iter(self._waiting)))

    def admit(self, connection: Connection) -> bool:
        """Let a connection stay after one of its requests was authenticated; return whether there is a place."""
        if connection in self._admitted:
            return True
        address = self._waiting.get(connection)
        if address is None:  # it has been closed for another one
            return False
        present = self._admitted_at.get(address, 0)
        if len(self._admitted) >= self._limits.connections or (address and present >= self._limits.per_address):
            return False
        self.remove(connection)
        self._admitted[connection] = address
        self._admitted_at[address] = present + 1
        return True

    def remove(self, connection: Connection) -> None:
        """Forget a connection that is closed."""
        address = self._waiting.pop(connection, None)
        if address is not None:
            del self._waiting_at[address][connection]
            if not self._waiting_at[address]:
                del self._waiting_at[address]
            return
        address = self._admitted.pop(connection, None)
        if address is not None:
            self._admitted_at[address] -= 1
            if not self._admitted_at[address]:
                del self._admitted_at[address]

    def _evict(self, connection: Connection) -> None:
        self.remove(connection)
        connection.evict()

    def _is_proxy(self, address: str) -> bool:
        if not self._proxies:
            return False
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._proxies)
