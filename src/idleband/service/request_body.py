"""Reading and decoding of request bodies."""

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, get_args

import msgspec
from starlette.requests import ClientDisconnect, Request

from idleband.errors import unknown
from idleband.service.problems import HTTPProblem

BODY_READ = "idleband.body_read"  # key in a scope: the body was read to its end
BASE_BYTES, BASE_VALUES = 2**16, 300  # of a body of any operation; a request_id may contain a comma per character
BYTES_PER_NUMBER, BYTES_PER_NAME = 64, 256  # written with all digits, escaped, and laid out on lines of their own


class BodySize(NamedTuple):
    """Size up to which a body can be valid.

    Decoding a million lists takes seconds, in which no other client is served. The number of values is therefore
    compared with what the operation can need before a body is decoded.
    """

    max_bytes: int
    max_values: int
    what: str = ""  # what the limits follow from, for messages

    @classmethod
    def of(cls, numbers: int, names: int, what: str) -> "BodySize":
        """Return the size of a body with at most so many numbers and so many names of channels, or flags."""
        max_bytes = BASE_BYTES + BYTES_PER_NUMBER * numbers + BYTES_PER_NAME * names
        return cls(max_bytes, BASE_VALUES + numbers + names, what)

    def and_also(self, other: "BodySize") -> "BodySize":
        """Return the size of a body that contains both."""
        return BodySize(self.max_bytes + other.max_bytes, self.max_values + other.max_values, self.what)

    def times(self, count: int) -> "BodySize":
        """Return the size of a body that contains so many of them."""
        return BodySize(self.max_bytes * count, self.max_values * count, self.what)

    def check(self, received: int, body: bytes) -> None:
        """Refuse a body of more bytes or values. Each value, but the first of a list or an object, follows a comma."""
        if received > self.max_bytes:
            raise _too_large(self.max_bytes, self.what)
        if body.count(b",") >= self.max_values:
            raise HTTPProblem(413, f"body{self.what}: must have at most {self.max_values} values")


def _too_large(max_bytes: int, what: str = "") -> HTTPProblem:
    return HTTPProblem(413, f"body{what}: must be at most {max_bytes} bytes")


async def read_body(request: Request, size: BodySize, max_bytes: int) -> bytes:
    """Return the body of a request. It must be JSON, and not larger than `size`.

    A larger one is read to its end without being kept, because a client that is still sending does not see a response.
    Above `max_bytes` it is refused at once.
    """
    headers = request.headers
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPProblem(415, "Content-Type: must be application/json")
    received, parts = 0, []
    length = headers.get("content-length", "0")
    if length.isdecimal() and len(length) < 100 and int(length) > max_bytes:
        raise _too_large(max_bytes)
    try:
        async for part in request.stream():
            received += len(part)
            if received > max_bytes:
                raise _too_large(max_bytes)
            if received <= size.max_bytes:
                parts.append(part)
    except ClientDisconnect:
        raise HTTPProblem(400, "body: ended early") from None
    request.scope[BODY_READ] = True
    body = b"".join(parts)
    size.check(received, body)
    return body


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
    unknown_field = re.fullmatch(r"Object contains unknown field `(.*?)`(?: - at `\$(.*)`)?", message)
    if unknown_field:
        name, place = unknown_field.groups(default="")
        inner, within = _message_at(kind, place), f" in {place.lstrip('.')}" if place else ""
        return str(unknown(f"field{within[:80]}", name[:80], [one.name for one in msgspec.structs.fields(inner)]))
    if "malformed" in message and re.search(rb"\b(NaN|Infinity)\b", body):
        return f"{message}: JSON has no NaN and no Infinity; all numbers must be finite"
    return message


def _message_at(kind: type, place: str) -> type:
    """Return the type of the message at a place such as `.steps[0].decide` of a message.

    The place may be wrong, because the name of an unknown field may contain anything.
    """
    for name in re.findall(r"\.(\w+)", place):
        found = [one for field in msgspec.structs.fields(kind) if field.name == name for one in _types(field.type)]
        kind = next((one for one in found if issubclass(one, msgspec.Struct)), kind)
    return kind


def _types(annotation: Any) -> Iterator[type]:
    """Yield the classes in an annotation."""
    for one in get_args(annotation):
        yield from _types(one)
    if isinstance(annotation, type):
        yield annotation
