"""A client: the service's operations as methods, over one connection that is made again when it breaks.

Every question carries a request id, and all feedback names one, so whatever was not answered can be said again: that is
what this does when a connection breaks or the service is starting anew.
"""

import contextlib
import http.client
import json
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from idleband.allocator.events import Decision, Receipt
from idleband.errors import ConflictError, IdlebandError, InputError, UnknownRequestError, shown

AGAIN = (502, 503, 504)  # the service is not there, or cannot write now: the same may be said again


class ServiceError(Exception):
    """The service could not be reached, or did not answer."""


class Client:
    """One allocator of a service.

    `patience` is how long, in seconds, a call goes on trying while the service cannot be reached.
    """

    def __init__(
        self, url: str, name: str = "main", *, token: str | None = None, timeout: float = 10.0, patience: float = 30.0
    ) -> None:
        parts = urlsplit(url)
        try:
            self._port = parts.port
        except ValueError:
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"url = {url!r}: must be like http://127.0.0.1:8765")
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._where = parts.netloc.rpartition("@")[2]  # as it is told in messages
        self._place, self._under = parts.hostname, parts.path.rstrip("/")
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._timeout, self._patience = timeout, patience
        self._at = f"/allocators/{quote(name, safe='')}"
        self._connection: http.client.HTTPConnection | None = None

    # --- what a base station does ------------------------------------------------------------------------------------

    def decide(
        self,
        contexts: Any,
        *,
        users: int | None = None,
        available: Sequence[bool] | None = None,
        states: Sequence[int | None] | None = None,
        slot: int | None = None,
        incumbent: Sequence[int] | None = None,
        request: str | None = None,
    ) -> Decision:
        """Which channels to hand out now. `request` names the question; a new name is made, if it is left out."""
        body = {
            "request": request or uuid.uuid4().hex,
            "contexts": _plain(contexts),
            "users": users,
            "available": _plain(available),
            "states": _plain(states),
            "slot": slot,
            "incumbent": _plain(incumbent),
        }
        found = self.call(
            "POST", f"{self._at}/decide", {key: value for key, value in body.items() if value is not None}
        )
        proposed = None if found["proposed"] is None else tuple(found["proposed"])
        return Decision(found["request"], tuple(found["channels"]), found["slot"], found["by"], proposed)

    def report(
        self,
        request: str,
        rewards: Mapping[int, float],
        states: Mapping[int, int] | None = None,
        perturbations: Mapping[int, float] | None = None,
        *,
        reference: Mapping[str, float] | None = None,
    ) -> Receipt:
        """What channels of a decision have returned, by channel: all of them, or some."""
        for field, given in (("rewards", rewards), ("states", states), ("perturbations", perturbations)):
            if given is not None and not isinstance(given, Mapping):
                raise InputError(f"{field} = {shown(given)}: must be a dict by channel, as in {{3: 1.0, 5: 0.1}}")
            for k in given or ():
                if k not in rewards:
                    raise InputError(f"{field}: channel {shown(k)} has no reward; must be given with it")
        outcomes = []
        for k, reward in rewards.items():
            outcome: dict[str, Any] = {"channel": k, "reward": reward}
            if states is not None and states.get(k) is not None:
                outcome["state"] = states[k]
            if perturbations is not None and perturbations.get(k) is not None:
                outcome["perturbation"] = perturbations[k]
            outcomes.append(outcome)
        body: dict[str, Any] = {"request": request, "outcomes": outcomes}
        if reference is not None:
            body["reference"] = dict(reference)
        found = self.call("POST", f"{self._at}/report", body)
        return Receipt(tuple(found["learned"]), tuple(found["repeated"]), found["late"])

    # --- looking and steering ----------------------------------------------------------------------------------------

    def explain(self, request: str) -> dict[str, Any]:
        """Why a decision was taken; the sentences are under "text"."""
        return self.call("GET", f"{self._at}/explain?{urlencode({'request': request})}")

    def snapshot(self) -> dict[str, Any]:
        """How the allocator stands."""
        return self.call("GET", self._at)

    def vacate(self, channels: Sequence[int]) -> list[int]:
        """These channels must be left now; those of them that the last decision handed out."""
        return list(self.call("POST", f"{self._at}/vacate", {"channels": _plain(channels)})["leave"])

    def restore(self, channels: Sequence[int]) -> None:
        self.call("POST", f"{self._at}/restore", {"channels": _plain(channels)})

    def reset(self) -> None:
        """Have the policy begin anew."""
        self.call("POST", f"{self._at}/reset")

    def health(self) -> dict[str, Any]:
        return self.call("GET", "/health")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- talking -----------------------------------------------------------------------------------------------------

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """One operation; said again, while the service cannot be reached and patience lasts."""
        try:
            data = None if body is None else json.dumps(body, allow_nan=False, default=_number).encode()
        except ValueError:
            where = next((key for key, value in body.items() if not _finite(value)), "body")
            raise InputError(f"{where}: holds a nan or an infinite number: every number must be finite") from None
        except TypeError as error:
            raise InputError(f"body: {error}") from None
        until, wait = time.monotonic() + self._patience, 0.02
        while True:
            try:
                status, answer = self._once(method, path, data)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                status, answer = 503, {"detail": f"{type(error).__name__}: {error}"}
            if status not in AGAIN:
                break
            left = until - time.monotonic()
            if left <= 0.0:
                raise ServiceError(f"{self._where}: {answer.get('detail', status)}")
            time.sleep(min(wait, left))
            wait = min(1.0, 2 * wait)
        if status == 200:
            return answer
        if status >= 500:
            raise ServiceError(f"{self._where}: {answer.get('detail', f'status {status}')}")
        errors: dict[int, type[IdlebandError]] = {404: UnknownRequestError, 409: ConflictError}
        raise errors.get(status, InputError)(str(answer.get("detail", f"status {status}")))

    def _once(self, method: str, path: str, data: bytes | None) -> tuple[int, Any]:
        if self._connection is None:
            self._connection = self._kind(self._place, self._port, timeout=self._timeout)
        self._connection.request(method, self._under + path, data, self._headers)
        answer = self._connection.getresponse()
        text = answer.read()
        with contextlib.suppress(ValueError):
            found = json.loads(text)
            if isinstance(found, dict):  # all answers of the service are
                return answer.status, found
        return answer.status, {"detail": text.decode(errors="replace")[:200]}


def _plain(values: Any) -> Any:
    """As JSON can say it; what it cannot, or not rightly, the service refuses."""
    if hasattr(values, "tolist"):
        return values.tolist()
    return list(values) if isinstance(values, Iterable) and not isinstance(values, str) else values


def _finite(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False, default=_number)
    except ValueError:
        return False
    return True


def _number(value: Any) -> Any:
    """NumPy's numbers as Python's."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be sent")
