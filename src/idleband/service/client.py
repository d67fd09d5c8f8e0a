"""A client of the service with the methods of an allocator."""

import contextlib
import http.client
import json
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from idleband.allocator.events import Decision, Receipt, StepResult
from idleband.errors import ConflictError, IdlebandError, InputError, UnknownRequestError, shown

RETRY_STATUSES = (502, 503, 504)  # the service is not reachable or cannot write now; the same request may be repeated
RETRY_DELAY, MAX_RETRY_DELAY = 0.02, 1.0  # seconds


class ServiceError(IdlebandError):
    """The service cannot be reached or does not answer."""


class Client:
    """A client for one allocator of a service.

    Methods and arguments are those of `Allocator`. The client uses one connection and opens it again when it breaks.
    Every request carries a `request_id`, so that a repeated request has no further effect: the client repeats requests
    while the service cannot be reached, for example while it is restarted.

    Parameters
    ----------
    url : str
        Address of the service, such as "http://127.0.0.1:8765".
    name : str
        Name of the allocator.
    token : str, optional
        Token of the service, if it has one.
    timeout : float
        Seconds to wait for the response to one attempt.
    patience : float
        Seconds for which a request is repeated while the service cannot be reached.

    Raises
    ------
    InputError
        If a request is invalid. Methods raise the same errors as those of `Allocator`.
    ServiceError
        If the service cannot be reached within `patience` seconds.

    Examples
    --------
    >>> client = Client("http://127.0.0.1:8765", "main")
    >>> decision = client.decide(contexts)                                      # doctest: +SKIP
    >>> client.report(decision.request_id, rewards=[1.0, 0.1], states=[1, 0])   # doctest: +SKIP
    Receipt(learned=(0, 3), repeated=(), late=False)
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
        self._connection_class = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._address = parts.netloc.rpartition("@")[2]  # for messages, without a password
        self._host, self._prefix = parts.hostname, parts.path.rstrip("/")
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._timeout, self._patience = timeout, patience
        self._name = name
        self._connection: http.client.HTTPConnection | None = None

    def decide(
        self,
        contexts: Any = None,
        users: Any = None,
        available: Any = None,
        states: Any = None,
        *,
        request_id: str | None = None,
        slot: int | None = None,
        incumbent: Any = None,
    ) -> Decision:
        """Assign channels in the next slot.

        Parameters
        ----------
        contexts : array of shape (channels, dimension) or None
            One context per channel; None for a policy that does not use contexts.
        users : int, optional
            Number of channels wanted, at most `users` of the allocator.
        available : sequence of bool, optional
            One flag per channel; all channels are available by default.
        states : sequence of int or None, optional
            States sensed before the decision, one per channel; None where a channel was not sensed.
        request_id : str, optional
            Name of the decision. A repeated request with the same name gets the same decision. By default a new
            name is chosen.
        slot : int, optional
            Number of the slot, greater than the last one.
        incumbent : sequence of int or str, optional
            Channels to assign instead of the policy's selection; the policy learns in shadow mode.

        Returns
        -------
        Decision
            The assigned channels.

        Raises
        ------
        ConflictError
            If `request_id` was used for a request with other values.
        """
        body = {
            "request_id": request_id,
            "contexts": contexts,
            "users": users,
            "available": available,
            "states": states,
            "slot": slot,
            "incumbent": incumbent,
        }
        return _decision(self._post("decide", _decide_body(body)))

    def report(
        self,
        request_id: str,
        rewards: Any,
        states: Any = None,
        perturbations: Any = None,
        *,
        reference: Mapping[str, float] | None = None,
    ) -> Receipt:
        """Report feedback for a decision, for all of its channels or some.

        Parameters
        ----------
        request_id : str
            Name of the decision.
        rewards, states, perturbations : sequence or dict, optional
            One value per channel in the order of the decision's channels, None where there is none; or a dict by
            channel index or name. States that are not given are inferred from the rewards. Perturbations
            are accepted if the allocator has feedback = "perturbation".
        reference : dict, optional
            Rewards of the references in this slot, which a simulator knows. They are shown on the page and not learned.

        Returns
        -------
        Receipt
            The channels that were learned from.

        Raises
        ------
        ConflictError
            If other feedback was reported for a channel before.
        UnknownRequestError
            If no decision with this request_id is kept.
        """
        body = {
            "request_id": request_id,
            "rewards": rewards,
            "states": states,
            "perturbations": perturbations,
            "reference": reference,
        }
        return _receipt(self._post("report", _given(body)))

    def step(self, report: Mapping[str, Any] | None = None, decide: Mapping[str, Any] | None = None) -> StepResult:
        """Report feedback for one slot and assign channels in the next, in one request, or neither if one is refused.

        Parameters
        ----------
        report : mapping, optional
            Arguments of `report`; left out in the first slot.
        decide : mapping, optional
            Arguments of `decide`; left out after the last slot. Without a `request_id` a new name is chosen.

        Returns
        -------
        StepResult
            The receipt and the decision. A repeated request with the same names gets the same decision, and the
            feedback is learned once.

        Raises
        ------
        InputError, ConflictError, UnknownRequestError
            As `report` and `decide`. Nothing is learned and no slot is taken.
        """
        return _step_result(self._post("step", _step_body(report, decide)))

    def steps(self, steps: Iterable[Mapping[str, Any]]) -> list[StepResult | IdlebandError]:
        """Report and decide for several allocators of the service in one request.

        Parameters
        ----------
        steps : iterable of mapping
            For each the `name` of the allocator, and `report`, `decide` or both, as in `step`. They are carried out in
            this order.

        Returns
        -------
        list of StepResult or IdlebandError
            For each step what `step` returns, or the error that it raises. A refused step does not stop the others.
        """
        body = []
        for one in steps:
            if not isinstance(one, Mapping):
                raise InputError(f"steps: {shown(one)}: must be a mapping with name, report and decide")
            body.append({**one, **_step_body(one.get("report"), one.get("decide"))})
        found = self.call("POST", "/v1/steps", {"steps": body})
        return [
            _error(one["problem"]["status"], one["problem"]["detail"]) if "problem" in one else _step_result(one)
            for one in found["results"]
        ]

    def explain(self, request_id: str) -> dict[str, Any]:
        """Explain a decision.

        Returns
        -------
        dict
            The numbers behind the decision; "text" contains the explanation in sentences.

        Raises
        ------
        UnknownRequestError
            If the decision is older than `patience` slots.
        """
        return self.call("GET", f"{self._path}/explain?{urlencode({'request_id': request_id})}")

    def status(self) -> dict[str, Any]:
        """Return the status of the allocator: sizes, counts, the last decision, channels and settings."""
        return self.call("GET", self._path)

    def vacate(self, channels: Any) -> tuple[int, ...]:
        """Exclude channels, given by index or name, from assignment.

        Returns
        -------
        tuple of int
            Those of the channels that the last decision assigned.
        """
        return tuple(self._post("vacate", {"channels": _plain(channels)})["leave"])

    def restore(self, channels: Any) -> None:
        """Allow vacated channels, given by index or name, again."""
        self._post("restore", {"channels": _plain(channels)})

    def reset(self) -> None:
        """Restart the policy if it is out of service."""
        self._post("reset", None)

    def rename(self, name: str) -> None:
        """Give the allocator another name, under which this client addresses it from then on.

        Parameters
        ----------
        name : str
            The new name; must not be that of another allocator.

        Raises
        ------
        ConflictError
            If another allocator has this name.
        """
        self._change({"name": name}, name)
        self._name = name

    def change(self, **settings: Any) -> dict[str, Any]:
        """Change settings of the allocator, all that are given or none.

        Parameters
        ----------
        **settings
            Of `channel_names`, `patience`, `deadline` and `collision_limit` those that are to change; None for no
            channel names, and for no deadline. The other settings of an allocator cannot be changed.

        Returns
        -------
        dict
            The status, as from `status`.
        """
        return self._change(settings, self._name)

    def delete(self) -> None:
        """Delete the allocator with all that it has learned. Its name can be used again afterwards."""
        number = self.status()["number"]
        with contextlib.suppress(UnknownRequestError):  # deleted by a request of which the answer was lost
            self.call("DELETE", f"{self._path}?number={number}")

    def _change(self, change: Mapping[str, Any], name: str) -> dict[str, Any]:
        number = self.status()["number"]
        body = {key: _plain(value) for key, value in change.items()}
        try:
            found = self.call("PATCH", f"{self._path}?number={number}", body)
        except UnknownRequestError:  # perhaps it was renamed by a request of which the answer was lost
            found = self.call("GET", _path(name))
            if found["number"] != number:
                raise
        return dict(found)

    def health(self) -> dict[str, Any]:
        """Return the health of the service."""
        return self.call("GET", "/health")

    def close(self) -> None:
        """Close the connection. The next request opens it again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request and return the decoded response. Repeat it while the service cannot be reached.

        Parameters
        ----------
        method, path : str
            Method and path of the operation, as in the OpenAPI document.
        body : optional
            Request body, encoded as JSON.
        """
        data = None if body is None else _encode(body)
        deadline, delay = time.monotonic() + self._patience, RETRY_DELAY
        while True:
            try:
                status, response = self._request(method, path, data)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                status, response = 503, {"detail": f"{type(error).__name__}: {error}"}
            if status not in RETRY_STATUSES:
                break
            left = deadline - time.monotonic()
            if left <= 0.0:
                break
            time.sleep(min(delay, left))
            delay = min(MAX_RETRY_DELAY, 2 * delay)
        if status == 200:
            return response
        detail = str(response.get("detail", f"status {status}"))
        if status >= 500:
            raise ServiceError(f"{self._address}: {detail}")
        raise _error(status, detail)

    @property
    def _path(self) -> str:
        return _path(self._name)

    def _post(self, operation: str, body: Any) -> Any:
        return self.call("POST", f"{self._path}/{operation}", body)

    def _request(self, method: str, path: str, data: bytes | None) -> tuple[int, dict[str, Any]]:
        if self._connection is None:
            self._connection = self._connection_class(self._host, self._port, timeout=self._timeout)
        self._connection.request(method, self._prefix + path, data, self._headers)
        response = self._connection.getresponse()
        text = response.read()
        with contextlib.suppress(ValueError):
            found = json.loads(text)
            if isinstance(found, dict):  # as every response of the service is
                return response.status, found
        return response.status, {"detail": text.decode(errors="replace")[:200]}


def _path(name: str) -> str:
    return f"/v1/allocators/{quote(name, safe='')}"


def _given(body: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _plain(value) for key, value in body.items() if value is not None}


def _decide_body(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {"request_id": uuid.uuid4().hex, **_given(arguments)}


def _step_body(report: Mapping[str, Any] | None, decide: Mapping[str, Any] | None) -> dict[str, Any]:
    for field, value in (("report", report), ("decide", decide)):
        if not (value is None or isinstance(value, Mapping)):
            raise InputError(f"{field} = {shown(value)}: must be a mapping with the arguments of {field}")
    body = {"report": report and _given(report), "decide": None if decide is None else _decide_body(decide)}
    return {key: value for key, value in body.items() if value is not None}


def _decision(found: dict[str, Any]) -> Decision:
    proposed = None if found["proposed"] is None else tuple(found["proposed"])
    return Decision(found["request_id"], tuple(found["channels"]), found["slot"], found["by"], proposed)


def _receipt(found: dict[str, Any]) -> Receipt:
    return Receipt(tuple(found["learned"]), tuple(found["repeated"]), found["late"])


def _step_result(found: dict[str, Any]) -> StepResult:
    report, decide = found.get("report"), found.get("decide")
    return StepResult(None if report is None else _receipt(report), None if decide is None else _decision(decide))


def _error(status: int, detail: str) -> IdlebandError:
    errors: dict[int, type[IdlebandError]] = {404: UnknownRequestError, 409: ConflictError}
    return errors.get(status, InputError)(detail)


def _encode(body: Any) -> bytes:
    try:
        return json.dumps(body, allow_nan=False, default=_number).encode()
    except ValueError:
        field = next((key for key, value in body.items() if not _is_finite(value)), "body")
        raise InputError(f"{field}: contains nan or an infinite number; all numbers must be finite") from None
    except TypeError as error:
        raise InputError(f"body: {error}") from None


def _plain(values: Any) -> Any:
    """Return arrays and sequences as lists, and mappings with keys that JSON can hold."""
    if hasattr(values, "tolist"):
        return values.tolist()
    if isinstance(values, Mapping):
        return {str(key): value for key, value in values.items()}
    return list(values) if isinstance(values, Iterable) and not isinstance(values, str) else values


def _is_finite(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False, default=_number)
    except ValueError:
        return False
    return True


def _number(value: Any) -> Any:
    """Return a NumPy number as a Python number."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be sent")
