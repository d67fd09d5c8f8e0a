"""Traces through OpenTelemetry, with the in-memory exporter of its SDK."""

import sys
from pathlib import Path

import pytest

from tests.service.running import NEW, V1, decide_body, in_thread, report_body

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from idleband.cli.main import main
from idleband.service.tracing import Tracing

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_span_per_request_continues_the_trace_of_the_client(tmp_path: Path) -> None:
    exporter = InMemorySpanExporter()
    with in_thread(tmp_path, tracing=Tracing(exporter)) as service:
        traceparent = f"00-{TRACE}-{PARENT}-01"
        decision = service.post(f"{V1}/main/decide", decide_body("r1"), traceparent=traceparent).data
        service.post("/v1/steps", {"steps": [{"name": "main", "report": report_body(decision)}]}, X_Request_Id="mine")
        service.get(f"{V1}/none")
        service.get("/nothing")
    spans = {one.attributes["url.path"]: one for one in exporter.get_finished_spans() if "url.path" in one.attributes}
    commits = [one for one in exporter.get_finished_spans() if one.name == "commit"]
    assert [one.name for one in spans.values()] == [
        "POST /v1/allocators/{name}/decide", "POST /v1/steps", "GET /v1/allocators/{name}", "GET",
    ]  # fmt: skip
    decide, steps, unknown, _ = spans.values()
    assert decide.parent is not None
    assert (f"{decide.context.trace_id:032x}", f"{decide.parent.span_id:016x}") == (TRACE, PARENT)
    assert decide.attributes["idleband.allocator"] == "main"
    assert decide.attributes["http.response.status_code"] == 200
    assert steps.parent is None
    assert steps.attributes["idleband.http_request_id"] == "mine"
    assert unknown.attributes["http.response.status_code"] == 404
    assert [one.parent.span_id for one in commits] == [decide.context.span_id, steps.context.span_id]
    assert decide.resource.attributes["service.name"] == "idleband"


def test_service_without_traces_does_not_import_opentelemetry(tmp_path: Path) -> None:
    with in_thread(tmp_path) as service:
        assert service.decide("r1").status == 200
        assert type(service.service.request_metrics._app).__name__ == "SecurityHeaders"
        assert "flush" not in vars(service.service.manager.commits)


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delitem(sys.modules, "idleband.service.tracing")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    for url, message in (
        ("http://localhost:4318", "--telemetry: needs opentelemetry; pip install 'idleband[telemetry]'"),
        ("localhost:4318", "--telemetry localhost:4318: must be like http://localhost:4318"),
    ):
        with pytest.raises(SystemExit):
            main(["serve", "--telemetry", url, "--data", "none", *map(str, NEW)])
        assert message in capsys.readouterr().err
