"""Metrics in the text format of Prometheus."""

from collections.abc import Iterator

from idleband.service.histogram import BUCKETS, Histogram
from idleband.service.manager import AllocatorManager
from idleband.service.middleware.request_metrics import RequestMetrics

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


def metrics_text(manager: AllocatorManager, requests: RequestMetrics, decisions: Histogram) -> str:
    """Return all metrics."""
    lines = (*_allocators(manager), *_journal(manager), *_requests(requests), *_durations(manager, requests, decisions))
    return "".join(f"{line}\n" for line in lines)


def _head(name: str, kind: str, description: str) -> list[str]:
    return [f"# HELP {name} {description}", f"# TYPE {name} {kind}"]


def _allocators(manager: AllocatorManager) -> Iterator[str]:
    statuses = {name: allocator.status() for name, allocator in manager.allocators.items()}
    for count, description in COUNTS.items():
        yield from _head(f"idleband_{count}_total", "counter", description)
        for name, status in statuses.items():
            yield f'idleband_{count}_total{{allocator="{name}"}} {status["counts"][count]}'
    yield from _head("idleband_slot", "gauge", "slot of the last decision")
    for name, status in statuses.items():
        yield f'idleband_slot{{allocator="{name}"}} {status["slot"]}'
    yield from _head("idleband_policy_in_service", "gauge", "0 while the fallback decides because the policy failed")
    for name, status in statuses.items():
        yield f'idleband_policy_in_service{{allocator="{name}"}} {int(not status["policy_failure"])}'
    yield from _head("idleband_belief", "gauge", "probability that a channel is idle")
    for name, status in statuses.items():
        for one in status["channel"]:
            labels = f'allocator="{name}",channel="{one["channel"]}",channel_name="{one["name"] or ""}"'
            yield f"idleband_belief{{{labels}}} {one['belief']:.6g}"


def _journal(manager: AllocatorManager) -> Iterator[str]:
    commits = manager.commits
    for name, description, value in (
        ("commits", "transactions of the journal", commits.commits),
        ("committed_events", "events in these transactions", commits.committed_events),
    ):
        yield from _head(f"idleband_{name}_total", "counter", description)
        yield f"idleband_{name}_total {value}"
    yield from _head("idleband_journal_works", "gauge", "0 while the journal cannot be written")
    yield f"idleband_journal_works {int(not manager.failure)}"


def _requests(metrics: RequestMetrics) -> Iterator[str]:
    yield from _head("idleband_requests_total", "counter", "HTTP requests")
    for (method, status), count in sorted(metrics.requests.items()):
        yield f'idleband_requests_total{{method="{method}",status="{status}"}} {count}'


def _durations(manager: AllocatorManager, requests: RequestMetrics, decisions: Histogram) -> Iterator[str]:
    yield from _histogram("request", "time from a request to the end of its response", requests.seconds)
    yield from _histogram("decision", "time to take a decision, before its commit", decisions)
    yield from _histogram("commit", "duration of a transaction of the journal", manager.commits.commit_seconds)


def _histogram(what: str, description: str, histogram: Histogram) -> Iterator[str]:
    name, total = f"idleband_{what}_seconds", 0
    yield from _head(name, "histogram", description)
    for limit, count in zip((*(f"{limit:g}" for limit in BUCKETS), "+Inf"), histogram.counts, strict=True):
        total += count
        yield f'{name}_bucket{{le="{limit}"}} {total}'
    yield f"{name}_sum {histogram.seconds}"
    yield f"{name}_count {total}"
