"""Bodies of journal events as bytes: decisions with what they were based on, feedback, vacated channels.

A body is an array of MessagePack. A later version may append fields, which earlier versions ignore, and for which it
uses defaults where an earlier version wrote the body.
"""

from typing import Any, NamedTuple

import msgspec
import numpy as np

from idleband.allocator.events import DecideRequest, Decision, RecordedDecision, Report
from idleband.allocator.settings import Settings
from idleband.arrays import Flags, Floats
from idleband.service.journal import Event


class _DecideBody(msgspec.Struct, array_like=True):
    slot: int
    users: int
    contexts: bytes
    available: bytes
    sensed: bytes
    incumbent: tuple[int, ...] | None
    channels: tuple[int, ...]
    by: str
    proposed: tuple[int, ...] | None
    policy_failure: str
    # For offline evaluation; older events end before these.
    allowed: bytes = b""
    propensities: bytes = b""
    time: float = 0.0


class _ReportBody(msgspec.Struct, array_like=True):
    # One value per channel of the decision, NaN where there is none.
    rewards: bytes
    states: bytes
    perturbations: bytes


class _ChannelsBody(msgspec.Struct, array_like=True):
    channels: tuple[int, ...]


_encode = msgspec.msgpack.Encoder().encode
_decode_decide = msgspec.msgpack.Decoder(_DecideBody).decode
_decode_report = msgspec.msgpack.Decoder(_ReportBody).decode
_decode_channels = msgspec.msgpack.Decoder(_ChannelsBody).decode


class Circumstances(NamedTuple):
    """What a decision was based on beside the request; it is not needed to replay the decision."""

    allowed: Flags  # (K,) channels that could be assigned; those of the request in older events
    propensities: Floats | None  # (K,) probabilities of being selected, if they are known
    time: float  # seconds since 1970; 0 in older events


def decision_body(
    request: DecideRequest,
    decision: Decision,
    policy_failure: str,
    allowed: Flags,
    propensities: Floats | None,
    time: float,
) -> bytes:
    """Return the body of a DECIDE event."""
    body = _DecideBody(
        request.slot, request.users, request.contexts.tobytes(), request.available.tobytes(), request.sensed.tobytes(),
        request.incumbent, decision.channels, decision.by, decision.proposed, policy_failure, allowed.tobytes(),
        b"" if propensities is None else propensities.tobytes(), time,
    )  # fmt: skip
    return _encode(body)


def read_decision(event: Event, settings: Settings) -> tuple[DecideRequest, RecordedDecision, Circumstances]:
    """Return the request and the decision of a DECIDE event, and what the decision was based on."""
    body, request_id = _decode_decide(event.body), event.request_id
    assert request_id is not None
    request = DecideRequest(
        request_id,
        body.slot,
        body.users,
        _floats(body.contexts).reshape(settings.channels, settings.dimension),
        np.frombuffer(body.available, np.bool_).copy(),
        np.frombuffer(body.sensed, np.int64).copy(),
        body.incumbent,
    )
    decision = Decision(request_id, body.channels, body.slot, body.by, body.proposed)
    circumstances = Circumstances(
        np.frombuffer(body.allowed or body.available, np.bool_).copy(),
        _floats(body.propensities) if body.propensities else None,
        body.time,
    )
    return request, RecordedDecision(decision, body.policy_failure), circumstances


def report_body(report: Report) -> bytes:
    """Return the body of a REPORT event."""
    return _encode(_ReportBody(report.rewards.tobytes(), report.states.tobytes(), report.perturbations.tobytes()))


def read_report(event: Event) -> Report:
    """Return the feedback of a REPORT event."""
    body = _decode_report(event.body)
    assert event.request_id is not None
    return Report(event.request_id, *map(_floats, (body.rewards, body.states, body.perturbations)))


def channels_body(channels: tuple[int, ...]) -> bytes:
    """Return the body of a VACATE or RESTORE event."""
    return _encode(_ChannelsBody(channels))


def read_channels(event: Event) -> tuple[int, ...]:
    """Return the channels of a VACATE or RESTORE event."""
    return _decode_channels(event.body).channels


def _floats(data: bytes) -> Any:
    return np.frombuffer(data, np.float64).copy()
