"""Traces of requests through OpenTelemetry. This module is imported only where traces are asked for."""

from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import idleband
from idleband.service.group_commit import GroupCommit
from idleband.service.http_request_id import HTTP_REQUEST_ID
from idleband.service.middleware.request_metrics import STREAMS
from idleband.service.operations import OPERATION

HEADERS = {b"traceparent": "traceparent", b"tracestate": "tracestate"}


class Tracing:
    """Records a span per request, and in it one per wait for a commit. A thread sends them, and drops what is too much.

    The span continues the trace that the traceparent header of the request names. Streams have none.
    """

    def __init__(self, exporter: SpanExporter) -> None:
        resource = Resource.create({"service.name": "idleband", "service.version": idleband.__version__})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("idleband", idleband.__version__)
        self._propagator = TraceContextTextMapPropagator()

    @classmethod
    def to(cls, url: str) -> "Tracing":
        """Return tracing that sends spans to a collector, by OTLP over HTTP."""
        return cls(OTLPSpanExporter(endpoint=f"{url.rstrip('/')}/v1/traces"))

    def trace_commits(self, commits: GroupCommit) -> None:
        """Record a span for each wait for a commit from now on."""
        flush = commits.flush

        async def traced_flush() -> None:
            with self._tracer.start_as_current_span("commit"):
                await flush()

        commits.flush = traced_flush  # type: ignore[method-assign]

    def middleware(self, app: ASGIApp) -> ASGIApp:
        """Return an application that records a span for each request."""

        async def traced(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or scope["path"].endswith(STREAMS):
                await app(scope, receive, send)
                return
            carrier = {HEADERS[key]: value.decode("latin-1") for key, value in scope["headers"] if key in HEADERS}
            attributes: dict[str, Any] = {
                "http.request.method": scope["method"],
                "url.path": scope["path"],
                "idleband.http_request_id": HTTP_REQUEST_ID.get().decode(),
            }
            with self._tracer.start_as_current_span(
                scope["method"], self._propagator.extract(carrier), SpanKind.SERVER, attributes
            ) as span:

                async def send_and_note(message: Message) -> None:
                    if message["type"] == "http.response.start":
                        span.set_attribute("http.response.status_code", message["status"])
                        if message["status"] >= 500:
                            span.set_status(Status(StatusCode.ERROR))
                    await send(message)

                await app(scope, receive, send_and_note)
                if OPERATION in scope:
                    span.update_name(scope[OPERATION])
                    if "name" in scope.get("path_params", ()):
                        span.set_attribute("idleband.allocator", scope["path_params"]["name"])

        return traced

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()
