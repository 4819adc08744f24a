"""Spans arrive at a collector, under the ids of the call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from libs.common.call_context import Call, enter
from libs.common.telemetry.otlp import tracer_provider
from libs.common.telemetry.spans import Tracing
from libs.common.trace_context import TraceContext, continue_trace

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Keeps the spans that it is sent."""

    def __init__(self) -> None:
        self.spans: list[Any] = []

    async def Export(self, request: Any, context: Any) -> Any:
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.spans.extend(scope.spans)
        return trace_service_pb2.ExportTraceServiceResponse()


@pytest.fixture
async def collector() -> AsyncIterator[tuple[Collector, str]]:
    kept = Collector()
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(kept, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield kept, f"http://127.0.0.1:{port}"
    await server.stop(None)


async def finish(tracing: Tracing) -> None:
    await asyncio.to_thread(tracing.shutdown)


async def test_a_sampled_call_sends_its_span_and_its_phases(collector: tuple[Collector, str]) -> None:
    kept, endpoint = collector
    tracing = Tracing(tracer_provider("executor", "i-1", endpoint))
    call = Call("/x.Service/Method", continue_trace(f"00-{TRACE}-{SPAN}-01"))
    enter(call)
    span = tracing.server_span(call)
    with tracing.phase("validate"):
        inner = call.trace.span_id
    tracing.end(span, "OK")
    await finish(tracing)
    spans = {span.name: span for span in kept.spans}
    assert set(spans) == {"x.Service/Method", "validate"}
    assert {span.trace_id.hex() for span in kept.spans} == {TRACE}
    assert spans["x.Service/Method"].parent_span_id.hex() == SPAN
    assert spans["validate"].parent_span_id == spans["x.Service/Method"].span_id == bytes.fromhex(inner)


async def test_a_trace_that_begins_here_has_the_id_of_the_call(collector: tuple[Collector, str]) -> None:
    kept, endpoint = collector
    tracing = Tracing(tracer_provider("executor", "i-1", endpoint))
    call = Call("/x.Service/Method", continue_trace(None, sample_ratio=1.0))
    enter(call)
    tracing.end(tracing.server_span(call), "OK")
    await finish(tracing)
    assert [s.trace_id.hex() for s in kept.spans] == [call.trace.trace_id]


async def test_an_unsampled_call_sends_nothing(collector: tuple[Collector, str]) -> None:
    kept, endpoint = collector
    tracing = Tracing(tracer_provider("executor", "i-1", endpoint))
    call = Call("/x.Service/Method", TraceContext(TRACE, SPAN, "", sampled=False))
    enter(call)
    with tracing.phase("validate"):
        tracing.end(tracing.server_span(call), "OK")
    await finish(tracing)
    assert kept.spans == []
