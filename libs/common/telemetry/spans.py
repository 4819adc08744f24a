"""Makes spans for sampled calls, exported over OTLP when an endpoint is configured, and free of cost when not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from libs.common.call_context import Call, current_call

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider


class Tracing:
    """Makes spans for sampled calls."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("toolmesh") if provider else None

    @property
    def recording(self) -> bool:
        """False without an exporter; then no spans are made."""
        return self._tracer is not None

    def server_span(self, call: Call) -> Any:
        """Begin the span of a call; None when the call is not sampled."""
        if self._tracer is None or not call.trace.sampled:
            return None
        from libs.common.telemetry.otlp import start_server_span

        return start_server_span(self._tracer, call)

    def end(self, span: Any, code: str) -> None:
        """End the span of a call."""
        if span is None:
            return
        span.set_attribute("rpc.grpc.status_code", code)
        span.end()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Surround one phase of the current call with a span."""
        call = current_call()
        if self._tracer is None or call is None or not call.trace.sampled:
            yield
            return
        from libs.common.telemetry.otlp import start_phase_span

        span = start_phase_span(self._tracer, call, name)
        try:
            yield
        except BaseException as error:
            span.set_attribute("error.type", type(error).__name__)
            raise
        finally:
            span.end()

    def shutdown(self) -> None:
        """Send what is left and stop."""
        if self._provider is not None:
            self._provider.shutdown()
