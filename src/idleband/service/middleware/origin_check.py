"""Protection of a service without a token from web pages of other origins."""

from starlette.types import ASGIApp, Scope

from idleband.service.middleware.check import Check
from idleband.service.middleware.headers import header
from idleband.service.problems import ProblemResponse


class OriginCheck(Check):
    """Refuse requests for another host and requests that a browser sends for a page of another origin.

    Without a token only this machine may use the service. A page of another origin must not reach it through a host
    name that resolves to this machine (DNS rebinding), nor through the browser of a user of this machine (cross-site
    request forgery).
    """

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...], public_paths: frozenset[str]) -> None:
        super().__init__(app)
        self._hosts, self._public_paths = frozenset(hosts), public_paths

    def refusal(self, scope: Scope) -> ProblemResponse | None:
        host = (header(scope, b"host") or "").lower()
        if _without_port(host) not in self._hosts:
            return ProblemResponse(421, "Host: must be the name or address that the service was started with")
        if scope["path"] not in self._public_paths and _is_cross_origin(scope, host):
            return ProblemResponse(403, "Origin: requests by pages of another origin are refused")
        return None


def _is_cross_origin(scope: Scope, host: str) -> bool:
    origin = header(scope, b"origin")
    if origin is not None and origin.partition("://")[2].lower() != host:
        return True
    return header(scope, b"sec-fetch-site") not in (None, "none", "same-origin")


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
