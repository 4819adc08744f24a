"""W3C trace context: the id under which a call is found again in traces, logs and audit records."""

from __future__ import annotations

import secrets

NOT_SAMPLED, SAMPLED = "00", "01"


def new_traceparent(flags: str = NOT_SAMPLED) -> str:
    """Begin a trace. Unless asked for, its spans are not recorded: logs and audit records carry the id all the same."""
    return f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-{flags}"


def trace_id_of(traceparent: str) -> str:
    """Return the trace id inside a traceparent; empty when it has none."""
    parts = traceparent.split("-")
    return parts[1] if len(parts) >= 4 else ""
