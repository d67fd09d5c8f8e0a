"""Limits on what clients may send."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits of one service."""

    body: int = 4 * 2**20  # bytes of one request body
    rate: float = 20_000.0  # requests per second from one address
    connections: int = 256  # open at the same time
