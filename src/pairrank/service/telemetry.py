"""Traces and metrics by OpenTelemetry, where its standard variables ask for them; else nothing of it is imported.

``OTEL_EXPORTER_OTLP_ENDPOINT`` (or ``OTEL_TRACES_EXPORTER`` and ``OTEL_METRICS_EXPORTER``, each otlp, console or none)
turns it on; ``OTEL_SERVICE_NAME``, ``OTEL_RESOURCE_ATTRIBUTES``, ``OTEL_TRACES_SAMPLER``, ``OTEL_PROPAGATORS`` and the
others mean what they mean everywhere. Needs ``pairrank[telemetry]``.

A request is a span in its caller's trace. An impression lives longer than a request: it has a trace of its own, whose
id is a digest of the impression's number, so that rank worker, feedback and learner find it without anything being
stored: ``impression ranked``, ``impression answered`` and ``impression learned``, each linked to the request that it
came from.
"""

from __future__ import annotations

import hmac
import logging
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import Scope

logger = logging.getLogger("pairrank.telemetry")

SIGNALS = ("traces", "metrics")


def exporter(signal: str, environment: Mapping[str, str]) -> str | None:
    """How ``signal`` leaves the process: otlp, console, or None for not at all."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    addresses = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    default = "otlp" if any(environment.get(name) for name in addresses) else "none"
    wanted = environment.get(f"OTEL_{signal.upper()}_EXPORTER") or default
    if wanted not in ("otlp", "console", "none"):
        logger.warning("OTEL_%s_EXPORTER is %r; expected otlp, console or none", signal.upper(), wanted)
        return None
    return None if wanted == "none" else wanted


class Telemetry:
    """The providers of this process, with what we measure."""

    def __init__(self, role: str, environment: Mapping[str, str]) -> None:
        from opentelemetry import propagate, trace
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
        from opentelemetry.sdk.trace.sampling import Decision

        own: dict[str, str | int] = {"pairrank.role": role, "process.pid": os.getpid()}
        if not environment.get("OTEL_SERVICE_NAME"):
            own["service.name"] = "pairrank"
        resource = Resource.create(own)
        self.trace, self.propagate, self.kept = trace, propagate, Decision.RECORD_AND_SAMPLE
        self.traces = TracerProvider(resource=resource)
        if way := exporter("traces", environment):
            self.traces.add_span_processor(
                BatchSpanProcessor(OTLPSpanExporter() if way == "otlp" else ConsoleSpanExporter())
            )
        way = exporter("metrics", environment)
        out = [OTLPMetricExporter() if way == "otlp" else ConsoleMetricExporter()] if way else []
        self.metrics = MeterProvider([PeriodicExportingMetricReader(one) for one in out], resource=resource)
        self.tracer = self.traces.get_tracer("pairrank")
        meter = self.metrics.get_meter("pairrank")
        self.seconds = meter.create_histogram("http.server.request.duration", "s", "Time to answer a request")
        self.impressions = meter.create_counter("pairrank.impressions", "{impression}", "Lists, by how far they came")


_active: Telemetry | None = None


def start(role: str, environment: Mapping[str, str] | None = None) -> None:
    """Begin to measure, if the variables ask for it."""
    global _active
    environment = os.environ if environment is None else environment
    if not any(exporter(signal, environment) for signal in SIGNALS):
        return
    try:
        _active = Telemetry(role, environment)
    except ImportError:
        logger.warning("OTEL_ variables are set, but OpenTelemetry is missing: pip install 'pairrank[telemetry]'")


def stop() -> None:
    """Send what is left, and measure no more."""
    global _active
    if _active is not None:
        _active.traces.shutdown()
        _active.metrics.shutdown()
        _active = None


def active() -> bool:
    return _active is not None


def impression(stage: str, ranker: str, secret: str, number: int) -> None:
    """Say how far impression ``number`` came: ranked, answered or learned; ``secret`` is its ranker's.

    It is a span in the impression's own trace, linked to the request under way.
    """
    own = _active
    if own is None:
        return
    own.impressions.add(1, {"stage": stage, "ranker": ranker})
    digest = hmac.digest(secret.encode(), f"trace {number}".encode(), "sha256")
    trace_id, span_id = int.from_bytes(digest[:16]), int.from_bytes(digest[16:24])
    # Every process decides alike whether this trace is kept: by the trace's id.
    if own.traces.sampler.should_sample(None, trace_id, "impression").decision is not own.kept:
        return
    trace = own.trace
    origin = trace.SpanContext(
        trace_id, span_id, is_remote=True, trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED)
    )
    asked = trace.get_current_span().get_span_context()
    own.tracer.start_span(
        f"impression {stage}",
        context=trace.set_span_in_context(trace.NonRecordingSpan(origin)),
        links=[trace.Link(asked)] if asked.is_valid else [],
        attributes={"pairrank.ranker": ranker, "pairrank.impression": number},
    ).end()


def request(scope: Scope) -> AbstractContextManager[object]:
    """A span around one request, in its caller's trace; nothing where nothing is measured."""
    own = _active
    if own is None:
        return nullcontext()
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    context = own.propagate.extract(headers)
    return own.tracer.start_as_current_span(scope["method"], context, own.trace.SpanKind.SERVER)


def answered(scope: Scope, status: int, seconds: float) -> None:
    """Say in its span how the request under way was answered."""
    own = _active
    if own is None:
        return
    # Routes have few names; paths would have one per ranker.
    route = getattr(scope.get("route"), "path", "(none)")
    told = {"http.request.method": scope["method"], "http.route": route, "http.response.status_code": status}
    span = own.trace.get_current_span()
    span.update_name(f"{scope['method']} {route}")
    span.set_attributes(told)
    if status >= 500:
        span.set_status(own.trace.StatusCode.ERROR)
    own.seconds.record(seconds, told)
