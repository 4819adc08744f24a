"""Exports spans over OTLP. Imported only by processes that have an endpoint, because the SDK is heavy."""

from __future__ import annotations

import random
from typing import Any

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags, Tracer, set_span_in_context

from libs.common.call_context import Call, current_call


class CallIds(IdGenerator):
    """Uses the call's own trace id for new traces, so that logs, audit and spans agree."""

    def generate_trace_id(self) -> int:
        call = current_call()
        return int(call.trace.trace_id, 16) if call else random.getrandbits(128)

    def generate_span_id(self) -> int:
        return random.getrandbits(64) or 1


def tracer_provider(service: str, instance: str, endpoint: str) -> TracerProvider:
    """Return a provider that sends spans to the endpoint in the background."""
    resource = Resource.create({"service.name": f"toolmesh-{service}", "service.instance.id": instance})
    # The process shuts it down; at exit the interpreter would wait for the collector once more.
    provider = TracerProvider(resource=resource, id_generator=CallIds(), shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=endpoint, insecure=endpoint.startswith("http://"))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def start_server_span(tracer: Tracer, call: Call) -> Any:
    """Begin the span of a call and make it the parent of everything below."""
    parent = _remote(call.trace.trace_id, call.trace.parent_id) if call.trace.parent_id else Context()
    span = tracer.start_span(call.method.lstrip("/"), context=parent, kind=SpanKind.SERVER)
    call.trace = call.trace._replace(span_id=format(span.get_span_context().span_id, "016x"))
    return span


def start_phase_span(tracer: Tracer, call: Call, name: str) -> Any:
    """Begin a span below the call's."""
    return tracer.start_span(name, context=_remote(call.trace.trace_id, call.trace.span_id))


def _remote(trace_id: str, span_id: str) -> Context:
    parent = SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED)
    )
    return set_span_in_context(NonRecordingSpan(parent), Context())
