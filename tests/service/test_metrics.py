"""What Prometheus reads."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from idleband.service.http import BUCKETS
from idleband.service.metrics import COUNTS
from tests.service.running import InThread, K, feedback, in_thread, settings

Labels = tuple[tuple[str, str], ...]
SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z]+="[^"\\\n]*",?)*)\})? (\S+)')


class Metrics:
    """A page of metrics, read as the text format says."""

    def __init__(self, text: str) -> None:
        assert text.endswith("\n")
        self.kinds: dict[str, str] = {}
        self.values: dict[tuple[str, Labels], float] = {}
        helped = ""
        for line in text.splitlines():
            if line.startswith("# HELP "):
                _, _, helped, words = line.split(" ", 3)
                assert words
                assert helped not in self.kinds  # each of them once
            elif line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                assert name == helped  # in this order
                self.kinds[name] = kind
            else:
                found = SAMPLE.fullmatch(line)
                assert found, line
                name, labels, value = found.groups()
                family = re.sub("_(bucket|sum|count)$", "", name) if self.kinds[helped] == "histogram" else name
                assert family == helped  # samples stand below their own head
                key = name, tuple(re.findall(r'([a-z]+)="([^"]*)"', labels or ""))
                assert key not in self.values
                self.values[key] = float(value)

    def of(self, name: str, **labels: str) -> float:
        return self.values[name, tuple(labels.items())]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InThread]:
    with in_thread(tmp_path_factory.mktemp("metrics"), main=settings(), other=settings(seed=1)) as running:
        yield running


def read(service: InThread) -> Metrics:
    reply = service.get("/metrics")
    assert (reply.status, reply.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    return Metrics(reply.text.decode())


def test_names_and_kinds(service: InThread) -> None:
    metrics = read(service)
    for name, kind in metrics.kinds.items():
        assert name.startswith("idleband_")
        assert kind == ("counter" if name.endswith("_total") else "histogram" if "seconds" in name else "gauge")
    for count in COUNTS:
        for name in ("main", "other"):
            assert metrics.of(f"idleband_{count}_total", allocator=name) == 0
    for k in range(K):
        assert metrics.of("idleband_belief", allocator="main", channel=str(k)) == 0.5


def test_counts_are_those_of_the_allocator_and_only_go_up(service: InThread) -> None:
    before = read(service)
    for i in range(3):
        said = feedback(service.decide(f"r{i}", i).data)
        service.report(said)
        service.report(said)
    service.decide("bad", users=99)
    after = read(service)
    for (name, labels), value in before.values.items():
        if before.kinds.get(name) == "counter":
            assert after.values[name, labels] >= value
    standing: dict[str, Any] = service.standing()
    for count, value in standing["counts"].items():
        assert after.of(f"idleband_{count}_total", allocator="main") == value
        assert after.of(f"idleband_{count}_total", allocator="other") == 0
    assert set(standing["counts"]) == set(COUNTS)
    assert (standing["counts"]["decisions"], standing["counts"]["repeated"]) == (3, 6)
    assert after.of("idleband_slot", allocator="main") == 3
    assert after.of("idleband_policy_in_service", allocator="main") == 1
    assert after.of("idleband_journal_works") == 1
    grown = {
        n: after.of(f"idleband_{n}_total") - before.of(f"idleband_{n}_total") for n in ("commits", "committed_events")
    }
    assert grown == {"commits": 6, "committed_events": 6}  # one at a time; what is repeated is no event
    key = {"method": "POST", "status": "200"}
    assert (
        after.of("idleband_requests_total", **key)
        - before.values.get(("idleband_requests_total", tuple(key.items())), 0)
        == 9
    )
    assert after.of("idleband_requests_total", method="POST", status="400") >= 1


def test_the_histogram_is_one(service: InThread) -> None:
    metrics = read(service)
    limits = [f"{limit:g}" for limit in BUCKETS] + ["+Inf"]
    counts = [metrics.of("idleband_request_seconds_bucket", le=limit) for limit in limits]
    assert counts == sorted(counts)
    total = metrics.of("idleband_request_seconds_count")
    assert counts[-1] == total
    assert 0 < metrics.of("idleband_request_seconds_sum") < 60 * total
    requests = sum(value for (name, _), value in metrics.values.items() if name == "idleband_requests_total")
    assert requests == total  # no streams were asked for
    assert metrics.of("idleband_request_seconds_count") < read(service).of("idleband_request_seconds_count")
