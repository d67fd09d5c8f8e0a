"""Metrics in the text format of Prometheus."""

import asyncio
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from idleband.service.manager import AllocatorManager
from idleband.service.middleware.request_metrics import BUCKETS, RequestMetrics

MAX_ALLOCATORS = 1000  # of which metrics are given, in alphabetical order

# Counts of an allocator -> description.
COUNTS = {
    "decisions": "decisions",
    "requested": "channels requested",
    "assigned": "channels assigned",
    "reported": "channels with feedback that was learned from",
    "reward": "sum of reported rewards",
    "collisions": "assigned channels with a primary user",
    "repeated": "channels with feedback that had been reported before",
    "late": "reports that came too late to be learned from",
    "fallback": "decisions of the fallback",
    "missed_deadlines": "decisions for which the policy missed its deadline",
    "shadowed": "channels assigned by an incumbent",
    "agreed": "channels assigned by an incumbent that the policy had selected too",
    "withheld": "channels not assigned because a primary user was too likely",
    "withheld_cost": "upper bound on the reward lost by withholding",
}


async def metrics_text(manager: AllocatorManager, requests: RequestMetrics) -> str:
    """Return all metrics. Other requests are answered in between."""
    opened = {one.name: one for one in manager.open_allocators}
    statuses: dict[str, dict[str, Any]] = {}
    for name in sorted(opened)[:MAX_ALLOCATORS]:
        statuses[name] = opened[name].status()
        await asyncio.sleep(0)
    parts = []
    for lines in itertools.chain(_allocators(statuses), [_service(manager), _requests(requests)]):
        parts.append("".join(f"{line}\n" for line in lines))
        await asyncio.sleep(0)
    return "".join(parts)


def _head(name: str, kind: str, description: str) -> list[str]:
    return [f"# HELP {name} {description}", f"# TYPE {name} {kind}"]


def _allocators(statuses: Mapping[str, dict[str, Any]]) -> Iterator[Iterable[str]]:
    """Yield the lines of one metric after the other."""
    for count, description in COUNTS.items():
        metric = f"idleband_{count}_total"
        yield _head(metric, "counter", description)
        yield [f'{metric}{{allocator="{name}"}} {status["counts"][count]}' for name, status in statuses.items()]
    yield _head("idleband_slot", "gauge", "slot of the last decision")
    yield [f'idleband_slot{{allocator="{name}"}} {status["slot"]}' for name, status in statuses.items()]
    metric = "idleband_policy_in_service"
    yield _head(metric, "gauge", "0 while the fallback decides because the policy failed")
    yield [f'{metric}{{allocator="{name}"}} {int(not one["policy_failure"])}' for name, one in statuses.items()]
    yield _head("idleband_belief", "gauge", "probability that a channel is idle")
    for name, status in statuses.items():
        yield [
            f'idleband_belief{{allocator="{name}",channel="{one["channel"]}",channel_name="{one["name"] or ""}"}}'
            f" {one['belief']:.6g}"
            for one in status["channel"]
        ]


def _service(manager: AllocatorManager) -> Iterator[str]:
    opened, commits = manager.open_allocators, manager.commits
    gauges = (
        ("allocators", "allocators of the service", len(manager.allocators)),
        ("open_allocators", "allocators in memory; the others are opened when they are needed", len(opened)),
        ("open_bytes", "estimate of the memory that the open allocators take", opened.bytes),
    )
    for name, description, number in gauges:
        yield from _head(f"idleband_{name}", "gauge", description)
        yield f"idleband_{name} {number}"
    totals: tuple[tuple[str, str, float], ...] = (
        ("openings", "allocators that were created or restored from the journal", manager.openings),
        ("closings", "allocators that were closed for want of memory", manager.closings),
        ("commits", "transactions of the journal", commits.commits),
        ("committed_events", "events in these transactions", commits.committed_events),
        ("commit_seconds", "duration of these transactions", commits.commit_seconds),
    )
    for name, description, value in totals:
        yield from _head(f"idleband_{name}_total", "counter", description)
        yield f"idleband_{name}_total {value}"
    yield from _head("idleband_journal_works", "gauge", "0 while the journal cannot be written")
    yield f"idleband_journal_works {int(not manager.failure)}"


def _requests(metrics: RequestMetrics) -> Iterator[str]:
    yield from _head("idleband_requests_total", "counter", "HTTP requests")
    for (method, status), count in sorted(metrics.requests.items()):
        yield f'idleband_requests_total{{method="{method}",status="{status}"}} {count}'
    yield from _head("idleband_request_seconds", "histogram", "time from a request to the end of its response")
    total = 0
    for limit, count in zip(BUCKETS, metrics.histogram, strict=False):
        total += count
        yield f'idleband_request_seconds_bucket{{le="{limit:g}"}} {total}'
    total += metrics.histogram[-1]
    yield f'idleband_request_seconds_bucket{{le="+Inf"}} {total}'
    yield f"idleband_request_seconds_sum {metrics.seconds}"
    yield f"idleband_request_seconds_count {total}"
