"""Counts and times as Prometheus reads them."""

from collections.abc import Iterator
from typing import Any

from idleband.service.http import BUCKETS, Gate
from idleband.service.manager import AllocatorManager

# name of a count -> what it is
COUNTS = {
    "decisions": "decisions taken",
    "requested": "channels requested",
    "assigned": "channels assigned",
    "reported": "channels that feedback was learned of",
    "reward": "rewards earned",
    "collisions": "channels handed out with a primary user on them",
    "repeated": "feedback that was there already",
    "late": "feedback that came too late to be learned",
    "fallback": "decisions that the fallback took",
    "missed_deadlines": "decisions for which the policy missed its deadline",
    "shadowed": "channels that an incumbent handed out",
    "agreed": "of these, channels that the policy would have handed out",
    "withheld": "channels not handed out because a primary user was too likely",
    "withheld_cost": "rewards that this may have cost",
}


def metrics_text(office: AllocatorManager, gate: Gate) -> str:
    return "".join(f"{line}\n" for line in (*_allocators(office), *_journal(office), *_http(gate)))


def _head(name: str, kind: str, help: str) -> list[str]:
    return [f"# HELP {name} {help}", f"# TYPE {name} {kind}"]


def _allocators(office: AllocatorManager) -> Iterator[str]:
    standing = {name: desk.allocator.status() for name, desk in office.desks.items()}
    for count, help in COUNTS.items():
        yield from _head(f"idleband_{count}_total", "counter", help)
        for name, found in standing.items():
            yield f'idleband_{count}_total{{allocator="{name}"}} {found["counts"][count]}'
    yield from _head("idleband_slot", "gauge", "slot of the last decision")
    for name, found in standing.items():
        yield f'idleband_slot{{allocator="{name}"}} {found["slot"]}'
    yield from _head("idleband_policy_in_service", "gauge", "0 where the fallback decides because the policy is broken")
    for name, found in standing.items():
        yield f'idleband_policy_in_service{{allocator="{name}"}} {int(not found["policy_failure"])}'
    yield from _head("idleband_belief", "gauge", "probability that a channel is idle")
    for name, found in standing.items():
        for one in found["channel"]:
            yield f'idleband_belief{{allocator="{name}",channel="{one["channel"]}"}} {one["belief"]:.6g}'


def _journal(office: AllocatorManager) -> Iterator[str]:
    values: dict[str, tuple[str, Any]] = {
        "commits": ("transactions of the journal", office.commits),
        "committed_events": ("events in them", office.committed),
        "commit_seconds": ("time they took", office.commit_seconds),
    }
    for name, (help, value) in values.items():
        yield from _head(f"idleband_{name}_total", "counter", help)
        yield f"idleband_{name}_total {value}"
    yield from _head("idleband_journal_works", "gauge", "0 while the journal cannot be written")
    yield f"idleband_journal_works {int(not office.failure)}"


def _http(gate: Gate) -> Iterator[str]:
    yield from _head("idleband_requests_total", "counter", "requests over HTTP")
    for (method, status), count in sorted(gate.requests.items()):
        yield f'idleband_requests_total{{method="{method}",status="{status}"}} {count}'
    yield from _head("idleband_request_seconds", "histogram", "time from a request to the end of its answer")
    total = 0
    for limit, count in zip(BUCKETS, gate.seconds, strict=False):
        total += count
        yield f'idleband_request_seconds_bucket{{le="{limit:g}"}} {total}'
    total += gate.seconds[-1]
    yield f'idleband_request_seconds_bucket{{le="+Inf"}} {total}'
    yield f"idleband_request_seconds_sum {gate.seconds_sum}"
    yield f"idleband_request_seconds_count {total}"
