"""Identifiers of HTTP requests, for logs and traces: that of the client, or a new one.

They are not the `request_id` of a decision.
"""

import itertools
import re
import secrets
from contextvars import ContextVar

from starlette.types import Scope

HTTP_REQUEST_ID: ContextVar[bytes] = ContextVar("idleband.http_request_id", default=b"")  # of the request at hand

_OWN = re.compile(rb"[A-Za-z0-9._:-]{1,64}")
_TRACEPARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_PREFIX, _NUMBERS = secrets.token_hex(6).encode(), itertools.count(1)


def http_request_id(scope: Scope) -> bytes:
    """Return the X-Request-Id of a request, or the trace id of its traceparent, or a new identifier.

    A header that is not well-formed is ignored, so that clients cannot write anything else into the log.
    """
    trace = None
    for key, value in scope["headers"]:
        if key == b"x-request-id" and _OWN.fullmatch(value):
            return bytes(value)
        if key == b"traceparent":
            trace = _TRACEPARENT.fullmatch(value)
    return trace[1] if trace else b"%s-%x" % (_PREFIX, next(_NUMBERS))
