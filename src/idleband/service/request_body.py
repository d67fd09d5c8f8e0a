"""Reading and decoding of request bodies."""

import re
from collections.abc import Callable
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request

from idleband.errors import unknown
from idleband.service.problems import HTTPProblem

BODY_READ = "idleband.body_read"  # key in a scope: the body was read to its end


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Return the body of a request. It must be JSON of at most `max_bytes`."""
    headers = request.headers
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPProblem(415, "Content-Type: must be application/json")
    size, parts = 0, []
    length = headers.get("content-length", "0")
    if length.isdecimal() and len(length) < 100 and int(length) > max_bytes:
        raise HTTPProblem(413, f"body: must be at most {max_bytes} bytes")
    try:
        async for part in request.stream():
            size += len(part)
            if size > max_bytes:
                raise HTTPProblem(413, f"body: must be at most {max_bytes} bytes")
            parts.append(part)
    except ClientDisconnect:
        raise HTTPProblem(400, "body: ended early") from None
    request.scope[BODY_READ] = True
    return b"".join(parts)


def body_decoder(kind: type) -> Callable[[bytes], Any]:
    """Return a function that decodes a body as a message of this type, or raises an HTTPProblem."""
    decode: Callable[[bytes], Any] = msgspec.json.Decoder(kind).decode

    def decode_body(body: bytes) -> Any:
        try:
            return decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise HTTPProblem(400, f"body: {_explain(str(error), body, kind)}") from None
        except RecursionError:
            raise HTTPProblem(400, "body: is nested too deeply") from None

    return decode_body


def _explain(message: str, body: bytes, kind: type) -> str:
    """Return the decoder's message, or a clearer one for common mistakes."""
    if not body:
        return "is empty; must be JSON"
    unknown_field = re.fullmatch("Object contains unknown field `(.*)`", message)
    if unknown_field:
        return str(unknown("field", unknown_field[1][:80], [one.name for one in msgspec.structs.fields(kind)]))
    if "malformed" in message and re.search(rb"\b(NaN|Infinity)\b", body):
        return f"{message}: JSON has no NaN and no Infinity; all numbers must be finite"
    return message
