"""Reduces a record that the log refuses, so that what has happened is recorded all the same.

What a caller or a tool can put into a record (summaries, lists, identifiers of the caller's choice) is left out. What
the
mesh itself states (ids, digests, decision, status, error, latency) is kept, with the reason of the refusal.
"""

from __future__ import annotations

from typing import Any

import orjson

REQUIRED = ("record_id", "event_class", "event_time", "writer")
_KEPT = (
    *REQUIRED,
    "invocation_id",
    "trace_id",
    "executor_id",
    "follows",
    "attempt",
    "state",
    "previous_state",
    "status",
    "error_reason",
    "latency_us",
    "cost_micros",
    "observed_effect_count",
    "tool_version",
    "tool_digest",
    "mutation_class",
    "authorization",
    "decision",
    "policy_set_version",
    "arguments_digest",
    "result_digest",
    "replayed",
    "preview",
    "resumed_from",
    "refused_calls",
    "act",
    "caller",
)
_KEPT_OF_CALLER = ("subject", "agent", "tenant", "tier", "token_id")
_MAX_REASON = 512


def reduce_form(form: bytes, path: str, rule: str) -> bytes:
    """Return the reduced form of a record, given the field and the rule of the refusal; empty if the bytes are not a
    record, or if it is reduced already."""
    try:
        record = orjson.loads(form)
    except orjson.JSONDecodeError:
        return b""
    if "reduced_reason" in record:
        return b""
    return orjson.dumps(_reduced(record, path, rule), option=orjson.OPT_SORT_KEYS)


def _reduced(record: dict[str, Any], path: str, rule: str) -> dict[str, Any]:
    reduced = {name: record[name] for name in _KEPT if name in record}
    if "caller" in reduced:
        reduced["caller"] = {name: value for name, value in record["caller"].items() if name in _KEPT_OF_CALLER}
    violating = path.partition(".")[0].partition("[")[0]
    if violating not in REQUIRED and violating != "caller":
        reduced.pop(violating, None)
    reduced["reduced_reason"] = f"{path} {rule}".strip()[:_MAX_REASON]
    return reduced
