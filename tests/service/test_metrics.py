"""Metrics in the text format of Prometheus."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from idleband.service.histogram import BUCKETS
from idleband.service.metrics import COUNTS
from tests.service.running import InThread, K, in_thread, report_body, settings

Labels = tuple[tuple[str, str], ...]
SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="[^"\\\n]*",?)*)\})? (\S+)')


class Metrics:
    """Parsed metrics."""

    def __init__(self, text: str) -> None:
        assert text.endswith("\n")
        self.kinds: dict[str, str] = {}
        self.values: dict[tuple[str, Labels], float] = {}
        family_name = ""
        for line in text.splitlines():
            if line.startswith("# HELP "):
                _, _, family_name, words = line.split(" ", 3)
                assert words
                assert family_name not in self.kinds
            elif line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                assert name == family_name
                self.kinds[name] = kind
            else:
                found = SAMPLE.fullmatch(line)
                assert found, line
                name, labels, value = found.groups()
                family = re.sub("_(bucket|sum|count)$", "", name) if self.kinds[family_name] == "histogram" else name
                assert family == family_name
                key = name, tuple(re.findall(r'([a-z_]+)="([^"]*)"', labels or ""))
                assert key not in self.values
                self.values[key] = float(value)

    def of(self, name: str, **labels: str) -> float:
        return self.values[name, tuple(labels.items())]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InThread]:
    with in_thread(
        tmp_path_factory.mktemp("metrics"),
        main=settings(),
        other=settings(seed=1, channel_names=[f"ch{k + 1}" for k in range(K)]),
    ) as running:
        yield running


def read(service: InThread) -> Metrics:
    reply = service.get("/metrics")
    assert (reply.status, reply.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    return Metrics(reply.text.decode())


def test_names_types_and_labels(service: InThread) -> None:
    metrics = read(service)
    for name, kind in metrics.kinds.items():
        assert name.startswith("idleband_")
        assert kind == ("counter" if name.endswith("_total") else "histogram" if "seconds" in name else "gauge")
    for count in COUNTS:
        for name in ("main", "other"):
            assert metrics.of(f"idleband_{count}_total", allocator=name) == 0
    for k in range(K):
        assert metrics.of("idleband_belief", allocator="main", channel=str(k), channel_name="") == 0.5
        assert metrics.of("idleband_belief", allocator="other", channel=str(k), channel_name=f"ch{k + 1}") == 0.5


def test_counts_are_those_of_the_allocator_and_never_decrease(service: InThread) -> None:
    before = read(service)
    for i in range(3):
        body = report_body(service.decide(f"r{i}", i).data)
        service.report(body)
        service.report(body)
    service.decide("bad", users=99)
    after = read(service)
    for (name, labels), value in before.values.items():
        if before.kinds.get(name) == "counter":
            assert after.values[name, labels] >= value
    status: dict[str, Any] = service.status()
    for count, value in status["counts"].items():
        assert after.of(f"idleband_{count}_total", allocator="main") == value
        assert after.of(f"idleband_{count}_total", allocator="other") == 0
    assert set(status["counts"]) == set(COUNTS)
    assert (status["counts"]["decisions"], status["counts"]["repeated"]) == (3, 6)
    assert after.of("idleband_slot", allocator="main") == 3
    assert after.of("idleband_policy_in_service", allocator="main") == 1
    assert after.of("idleband_journal_works") == 1
    grown = {
        n: after.of(f"idleband_{n}_total") - before.of(f"idleband_{n}_total") for n in ("commits", "committed_events")
    }
    assert grown == {"commits": 6, "committed_events": 6}  # one per request; repeated reports are no events
    key = {"method": "POST", "status": "200"}
    assert (
        after.of("idleband_requests_total", **key)
        - before.values.get(("idleband_requests_total", tuple(key.items())), 0)
        == 9
    )
    assert after.of("idleband_requests_total", method="POST", status="400") >= 1


def test_histogram_is_cumulative_and_complete(service: InThread) -> None:
    metrics = read(service)
    limits = [f"{limit:g}" for limit in BUCKETS] + ["+Inf"]
    counts = [metrics.of("idleband_request_seconds_bucket", le=limit) for limit in limits]
    assert counts == sorted(counts)
    total = metrics.of("idleband_request_seconds_count")
    assert counts[-1] == total
    assert 0 < metrics.of("idleband_request_seconds_sum") < 60 * total
    requests = sum(value for (name, _), value in metrics.values.items() if name == "idleband_requests_total")
    assert requests == total  # without streams
    assert metrics.of("idleband_request_seconds_count") < read(service).of("idleband_request_seconds_count")


def test_decisions_and_commits_are_timed(service: InThread) -> None:
    before = read(service)
    body = report_body(service.decide("timed").data)
    service.post("/v1/allocators/main/step", {"report": body, "decide": {"request_id": "timed-2"}})
    service.decide("refused", users=99)
    after = read(service)
    grown = {
        what: after.of(f"idleband_{what}_seconds_count") - before.of(f"idleband_{what}_seconds_count")
        for what in ("decision", "commit")
    }
    assert grown == {"decision": 2, "commit": 2}
    for what in grown:
        assert after.of(f"idleband_{what}_seconds_sum") > before.of(f"idleband_{what}_seconds_sum")
        assert after.of(f"idleband_{what}_seconds_bucket", le="+Inf") == after.of(f"idleband_{what}_seconds_count")
