"""W3C trace context: creates and reads traceparents."""

from __future__ import annotations

import secrets

# Both say that the trace id is random.
NOT_SAMPLED, SAMPLED = "02", "03"


def new_traceparent(flags: str = NOT_SAMPLED) -> str:
    """Start a trace. Spans are not sampled by default; logs and audit records have the trace id anyway."""
    return f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-{flags}"


def trace_id_of(traceparent: str) -> str:
    """Return the trace id of a traceparent; empty if it has none."""
    parts = traceparent.split("-")
    return parts[1] if len(parts) >= 4 else ""
