"""Traces and metrics of a real service, as they reach a collector over OTLP."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tree import Tree

from pairrank.service import telemetry

DOCUMENTS = [{"id": "a", "features": [0.0, 1.0]}, {"id": "b", "features": [1.0, 0.0]}]
TRACE = "0af7651916cd43dd8448eb211c80319c"


class Collector(ThreadingHTTPServer):
    """Takes what exporters send, and keeps it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.spans: list[tuple[str, Any]] = []
        self.metrics: dict[str, Any] = {}

    def take(self, path: str, body: bytes) -> None:
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        if path == "/v1/traces":
            for part in ExportTraceServiceRequest.FromString(body).resource_spans:
                about = {entry.key: entry.value.string_value for entry in part.resource.attributes}
                assert about["service.name"] == "shop-ranking"
                self.spans += [(about["pairrank.role"], span) for scope in part.scope_spans for span in scope.spans]
        else:
            for part in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for scope in part.scope_metrics:
                    self.metrics |= {metric.name: metric for metric in scope.metrics}


class Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            import gzip

            body = gzip.decompress(body)
        self.server.take(self.path, body)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.slow
def test_a_list_is_followed_from_its_request_to_the_model(
    tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="pip install 'pairrank[telemetry]'")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop-ranking")
    tree = Tree(f"sqlite:///{tmp_path / 'store.db'}")
    try:
        tree.client.create("shop", 2)
        connection = http.client.HTTPConnection("127.0.0.1", tree.client._port)
        headers = {"Content-Type": "application/json", "traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
        connection.request("POST", "/v1/rankers/shop/rank", json.dumps({"documents": DOCUMENTS}), headers)
        shown = json.loads(connection.getresponse().read())
        connection.close()
        assert tree.client.feedback("shop", shown["impression_id"], ["a"]) == "accepted"
    finally:
        assert tree.stop() == 0  # sends what is left
    spans = {span.name: (role, span) for role, span in collector.spans}
    role, rank = spans["POST /v1/rankers/{name}/rank"]
    assert role == "worker"
    assert rank.trace_id.hex() == TRACE
    assert rank.parent_span_id.hex() == "b7ad6b7169203331"
    _, feedback = spans["POST /v1/rankers/{name}/feedback"]
    assert feedback.trace_id != rank.trace_id
    life = [spans[f"impression {stage}"] for stage in ("ranked", "answered", "learned")]
    assert [role for role, _ in life] == ["worker", "worker", "learner"]
    assert len({span.trace_id for _, span in life}) == 1
    assert life[0][1].links[0].span_id == rank.span_id
    assert life[1][1].links[0].span_id == feedback.span_id
    assert "http.server.request.duration" in collector.metrics
    assert "pairrank.impressions" in collector.metrics


@pytest.mark.parametrize(
    ("environment", "traces", "metrics"),
    [
        ({}, None, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a"}, "otlp", "otlp"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://a"}, "otlp", None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_METRICS_EXPORTER": "none"}, "otlp", None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_SDK_DISABLED": "true"}, None, None),
        ({"OTEL_TRACES_EXPORTER": "console"}, "console", None),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, None, None),
    ],
)
def test_the_standard_variables(environment: dict[str, str], traces: str | None, metrics: str | None) -> None:
    found = [telemetry.exporter(signal, environment) for signal in telemetry.SIGNALS]
    assert found == [traces, metrics]


def test_without_variables_nothing_is_measured() -> None:
    telemetry.start("worker", {})
    assert not telemetry.active()
    with telemetry.request({}) as span:
        assert span is None
