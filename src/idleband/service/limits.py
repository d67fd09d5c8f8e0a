"""Limits on what clients may send, and on memory."""

import ipaddress
from dataclasses import dataclass

from idleband.errors import InputError, shown


@dataclass(frozen=True)
class Limits:
    """Limits of one service."""

    body: int = 4 * 2**20  # bytes of one request body
    rate: float = 20_000.0  # requests per second from one address
    connections: int = 256  # open at the same time
    per_address: int = 128  # of them from one address, unless it is that of a proxy
    proxies: tuple[str, ...] = ()  # addresses and networks whose X-Forwarded-For header names the client
    memory: int = 2**30  # bytes of open allocators; those that have not been used for longest are closed


def proxy(text: str) -> str:
    """Return the address or network of a proxy, or refuse the text.

    >>> proxy("10.1.0.0/16")
    '10.1.0.0/16'
    """
    try:
        return str(ipaddress.ip_network(text))
    except ValueError:
        raise InputError(f"--proxy {shown(text)}: must be an IP address or a network such as 10.1.0.0/16") from None
