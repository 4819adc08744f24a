"""Records that differ from an earlier one only in what is never the same: written by filling in a pattern.

Most calls are like others before them: same caller, same tool, allowed by the same policies, and they end well. Of their records only ids,
times, digests and summaries differ. Everything else is text that was written once and is kept with gaps in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import orjson

from services.executor.domain.model import Decision, Payload, Record, Status
from services.executor.domain.tool import Tool

Form = Callable[[Record], dict[str, Any]]

# What differs, by the names under which the form has it and in their order.
_GO_AHEAD = (
    "arguments_digest", "arguments_summary", "decision", "event_time", "invocation_id", "record_id", "trace_id",
)  # fmt: skip
_SUCCESS = (
    "arguments_digest", "arguments_summary", "decision", "event_time", "follows", "invocation_id", "latency_us",
    "record_id", "result_digest", "result_summary", "trace_id",
)  # fmt: skip
_NAMES = {Status.BEGUN: _GO_AHEAD, Status.SUCCESS: _SUCCESS}
# JSON already; all others are texts.
_AS_THEY_ARE = frozenset({"arguments_summary", "result_summary", "latency_us"})
# Nothing that JSON holds.
_GAP = b"\x00"
# What stands between quotes as it is. All other texts are of this process's own making: ids, digests, moments, hex digits of a trace.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9/:._-]+")
_REMEMBERED = 1024


class Patterns:
    """The texts of records with gaps where they differ. `form` says what the first of a kind looks like, and every record that has more to
    tell than most."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._patterns: dict[tuple[object, ...], str] = {}

    def written(self, record: Record, moment: str) -> bytes:
        """Return the canonical form of a record, whose time is given as it is written."""
        tool, decision, arguments = record.tool, record.decision, record.arguments
        if tool is None or decision is None or arguments is None or _tells_more(record):
            return self._plainly(record)
        values = _values(record, decision.name, arguments, moment)
        # What is empty has no place in the form, so it is not one of a kind.
        if not all(values) or not _PLAIN_NAME.fullmatch(decision.name):
            return self._plainly(record)
        kind = _kind(record, tool, decision)
        pattern = self._patterns.get(kind) or self._met(kind, record)
        return (pattern % values).encode() if pattern else self._plainly(record)

    def _plainly(self, record: Record) -> bytes:
        return orjson.dumps(self._form(record), option=orjson.OPT_SORT_KEYS)

    def _met(self, kind: tuple[object, ...], record: Record) -> str:
        """Return the pattern of a kind, from the second time on that it is met: with tokens that serve one call each, no kind ever is."""
        if kind not in self._patterns:
            if len(self._patterns) >= _REMEMBERED:
                self._patterns.clear()
            self._patterns[kind] = ""
            return ""
        form = self._form(record)
        for name in _NAMES[record.status]:
            form[name] = orjson.Fragment(_GAP if name in _AS_THEY_ARE else b'"' + _GAP + b'"')
        text = orjson.dumps(form, option=orjson.OPT_SORT_KEYS).decode()
        pattern = self._patterns[kind] = text.replace("%", "%%").replace(_GAP.decode(), "%s")
        return pattern


def _values(record: Record, decision: str, arguments: Payload, moment: str) -> tuple[object, ...]:
    """What a record fills the gaps of its kind with; one empty value for a record of no kind."""
    result, latency, trace_id = record.result, record.latency, record.request.trace_id
    digest, summary = arguments.digest, arguments.summary.decode()
    if record.status is Status.BEGUN and result is None and latency is None and not record.follows:
        return digest, summary, decision, moment, record.invocation_id, record.record_id, trace_id
    if record.status is not Status.SUCCESS or result is None or latency is None:
        return (None,)
    return (
        digest,
        summary,
        decision,
        moment,
        record.follows,
        record.invocation_id,
        int(latency * 1e6),
        record.record_id,
        result.digest,
        result.summary.decode(),
        trace_id,
    )


def _tells_more(record: Record) -> bool:
    """Say whether a record has what those of its kind have not."""
    request = record.request
    return bool(
        record.reason
        or record.changes
        or record.effects
        or record.hooks
        or record.violations
        or record.undone_by
        or record.cost_micros
        or record.replayed
        or record.preview
        or request.idempotency_key
        or request.task_id
        or request.native_call_id
    )


def _kind(record: Record, tool: Tool, decision: Decision) -> tuple[object, ...]:
    """What records have in common that differ only in their gaps."""
    caller = record.request.caller
    return (
        record.event,
        record.state,
        record.previous_state,
        record.state_path,
        record.status,
        record.sandbox,
        record.attempt,
        tool.name,
        tool.digest,
        tool.mutation,
        tool.side_effects,
        decision.verdict,
        decision.policies,
        decision.policy_set_version,
        caller.token_id,
        caller.session_id,
        caller.peer,
    )
