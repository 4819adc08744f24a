"""Encodes audit records as canonical JSON inside a Protobuf fragment of a batch.

Each record is encoded once; the log hashes these bytes. docs/audit.md specifies the fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import orjson
from msgspec.structs import replace
from toolmesh.audit.v1 import audit_service_pb2 as pb

from libs.common.redaction.tenant_scanners import TenantScanners
from libs.common.runtime.bounded_cache import BoundedCache
from services.executor.domain.model import Caller, Event, PayloadDigest, Record, Status, Verdict
from services.executor.domain.results.costs import total_of
from services.executor.domain.tool import Effect, Tool

WRITER = "executor"
_EVENTS = {event: event.value.lower() for event in Event}
_STATUSES = {status: "" if status is Status.BEGUN else status.value.lower() for status in Status}
_OUTCOMES = {Verdict.ALLOW: "allow", Verdict.DENY: "deny", Verdict.NEEDS_APPROVAL: "requires_approval"}
# The contract's limits for a record. The decision and the manifest hold the complete lists.
_MAX_POLICIES = _MAX_LISTED = 64
_MAX_EFFECTS = 256
_MAX_NAME = 512
_MAX_CATEGORY = 64
_MAX_REASON = 2048
_MAX_KEY, _MAX_TASK, _MAX_CALL_ID = 255, 128, 255
_CACHED_CALLERS = 4096


# The Protobuf tag of a record in a batch: field number and wire type 2 (length-delimited).
_TAG = bytes([pb.AppendRecordsRequest.CANONICAL_RECORDS_FIELD_NUMBER << 3 | 2])


def encode_fragment(form: bytes) -> bytes:
    """Return a canonical form as a fragment of a batch."""
    return _TAG + _varint(len(form)) + form


def decode_fragment(fragment: bytes) -> bytes:
    """Return the canonical form of a fragment."""
    return pb.AppendRecordsRequest.FromString(fragment).canonical_records[0]


class RecordEncoder:
    """Encodes records as fragments of an AppendRecordsRequest.

    Concatenated Protobuf messages parse as one merged message, so a batch is its number followed by its fragments.
    """

    def __init__(self, executor_id: str, scanners: TenantScanners | None = None) -> None:
        self._executor_id, self._scanners = executor_id, scanners or TenantScanners()
        self._callers: BoundedCache[tuple[str, str, str], orjson.Fragment] = BoundedCache(_CACHED_CALLERS)

    def encode(self, record: Record) -> bytes:
        """Return a serialized batch of this one record, without a batch number."""
        # Equal to RFC 8785 for ASCII keys and values that are strings, integers and booleans.
        return encode_fragment(orjson.dumps(self._form(record), option=orjson.OPT_SORT_KEYS))

    def encode_without_summaries(self, record: Record) -> bytes:
        """Return `encode` of a record without the content of its arguments and its result."""
        arguments, result = _digest_only(record.arguments), _digest_only(record.result)
        return self.encode(replace(record, arguments=arguments, result=result))

    def _form(self, record: Record) -> dict[str, Any]:
        """Return the non-empty fields."""
        request = record.request
        form: dict[str, Any] = {
            "record_id": record.record_id,
            "event_class": _EVENTS[record.event],
            "event_time": _timestamp(record.time),
            "writer": WRITER,
            "invocation_id": record.invocation_id,
            "caller": self._caller(request.caller),
            "executor_id": self._executor_id,
            "state": record.state,
        }
        if record.resource:
            form["act"] = _act_form(record)
        if request.trace_id:
            form["trace_id"] = request.trace_id
        if record.previous_state:
            form["previous_state"] = record.previous_state
        if status := _STATUSES[record.status]:
            form["status"] = status
        self._add_names(form, record)
        if record.ticket:
            form["ticket"] = record.ticket
        if record.follows:
            form["follows"] = record.follows
        if record.attempt:
            form["attempt"] = record.attempt
            if record.sandbox:
                form["sandbox"] = record.sandbox
        self._add_tool(form, record)
        _add_decision(form, record)
        _add_outcome(form, record)
        self._add_history(form, record)
        return form

    def _add_names(self, form: dict[str, Any], record: Record) -> None:
        """Add the caller's own identifiers, redacted. Redaction may lengthen a text, so each is truncated afterwards:
        the log would otherwise refuse the record, which a caller could provoke."""
        request = record.request
        if request.idempotency_key:
            form["idempotency_key"] = self._redact(request.idempotency_key, record)[:_MAX_KEY]
            if record.replayed:
                form["replayed"] = True
        if request.task_id:
            form["task_id"] = self._redact(request.task_id, record)[:_MAX_TASK]
        if request.native_call_id:
            form["native_call_id"] = self._redact(request.native_call_id, record)[:_MAX_CALL_ID]

    def _redact(self, text: str, record: Record) -> str:
        scanner = record.scanner or self._scanners.of(record.request.caller.tenant)
        return str(scanner.text(text).value)

    def _add_tool(self, form: dict[str, Any], record: Record) -> None:
        tool, request = record.tool, record.request
        if tool is None and (version := record.unavailable) is not None:
            form["tool_version"], form["tool_digest"] = version.name, version.digest
            return
        if tool is None:
            requested = f"{request.tool}@{request.version}" if request.version else request.tool
            if redacted := self._redact(requested, record)[:_MAX_NAME]:
                form["tool_version"] = redacted
            return
        form["tool_version"], form["tool_digest"] = tool.name, tool.digest
        form["mutation_class"] = tool.mutation
        if tool.side_effects:
            form["declared_effects"] = tool.side_effects[:_MAX_LISTED]

    def _add_history(self, form: dict[str, Any], record: Record) -> None:
        """Add argument changes, hooks, effects, violations and costs."""
        if record.state_path:
            form["state_path"] = record.state_path
        if record.preview:
            form["preview"] = True
        if record.changes:
            changes = [
                f"{change.source} {_path(record.tool, change.path)} {change.reason}" for change in record.changes
            ]
            form["argument_changes"] = self._redact_list(changes, record)
        if record.hooks:
            form["hooks"] = self._redact_list(record.hooks, record)
        if record.effects:
            form["observed_effects"] = self._effect_forms(record.effects, record)
            form["observed_effect_count"] = len(record.effects)
        if record.foreseen:
            form["foreseen_effects"] = self._effect_forms(record.foreseen, record)
        if record.violations:
            form["violations"] = self._redact_list(_effects(record.violations), record)
        if record.undone_by:
            form["compensation"] = record.undone_by
        if record.cancellation:
            form["cancellation"] = record.cancellation
        if record.resumed_from:
            form["resumed_from"] = record.resumed_from[:_MAX_NAME]
        if record.refused_calls > 1:
            form["refused_calls"] = record.refused_calls
        if record.costs:
            form["cost_micros"] = total_of(record.costs)
            form["costs"] = [self._cost_form(*cost, record) for cost in record.costs]

    def _effect_forms(self, effects: Sequence[Effect], record: Record) -> list[dict[str, str]]:
        return [
            _non_empty(
                resource=self._redact(effect.resource, record)[:_MAX_NAME],
                operation=effect.operation,
                source="observed" if effect.observed else "reported",
                digest_before=effect.before,
                digest_after=effect.after,
            )
            for effect in effects[:_MAX_EFFECTS]
        ]

    def _cost_form(self, category: str, micros: int, record: Record) -> dict[str, Any]:
        name = self._redact(category, record)[:_MAX_CATEGORY]
        return _non_empty(category=name, amount_micros=micros)

    def _redact_list(self, texts: Sequence[str], record: Record) -> list[str]:
        """Redact a list of texts. If it is too long, the last element states how many are left out."""
        count = len(texts) if len(texts) <= _MAX_LISTED else _MAX_LISTED - 1
        redacted = [self._redact(text.strip(), record)[:_MAX_NAME] for text in texts[:count]]
        return redacted if count == len(texts) else [*redacted, f"and {len(texts) - count} more"]

    def _caller(self, caller: Caller) -> orjson.Fragment:
        """Return the encoded caller, cached because calls with one token come in series."""
        key = (caller.token_id, caller.session_id, caller.peer)
        cached = self._callers.get(key)
        if cached is not None:
            return cached
        session = str(self._scanners.of(caller.tenant).text(caller.session_id).value)
        form = orjson.dumps(_caller_form(caller, session), option=orjson.OPT_SORT_KEYS)
        return self._callers.put(key, orjson.Fragment(form))


def _act_form(record: Record) -> dict[str, str]:
    form = {"resource": record.resource[:_MAX_NAME], "reason": record.act_reason[:_MAX_REASON]}
    return {name: value for name, value in form.items() if value}


def _add_decision(form: dict[str, Any], record: Record) -> None:
    decision = record.decision
    if decision is None:
        return
    form["authorization"] = _OUTCOMES[decision.verdict]
    if decision.name:
        form["decision"] = decision.name
    if decision.policies:
        form["determining_policies"] = decision.policies[:_MAX_POLICIES]
    if decision.policy_set_version:
        form["policy_set_version"] = decision.policy_set_version


def _add_outcome(form: dict[str, Any], record: Record) -> None:
    arguments, result, reason = record.arguments, record.result, record.reason
    if arguments is not None:
        form["arguments_digest"] = arguments.digest
        if arguments.summary:
            form["arguments_summary"] = orjson.Fragment(arguments.summary)
    if result is not None:
        form["result_digest"] = result.digest
        if result.summary:
            form["result_summary"] = orjson.Fragment(result.summary)
    if reason is not None:
        form["error_reason"] = f"E{int(reason)} {reason.name}"
    if record.latency is not None:
        form["latency_us"] = int(record.latency * 1e6)


def _digest_only(payload: PayloadDigest | None) -> PayloadDigest | None:
    return None if payload is None else PayloadDigest(payload.digest)


def _path(tool: Tool | None, pointer: str) -> str:
    """Return the pointer of a changed argument, without the names inside a field that is declared sensitive."""
    declared = None if tool is None else tool.input.declared
    return pointer if declared is None else declared.named(pointer)


def _non_empty(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def _effects(effects: Iterable[Effect]) -> list[str]:
    return [f"{effect.operation} {effect.resource}" for effect in effects]


def _caller_form(caller: Caller, session: str) -> dict[str, Any]:
    form: dict[str, Any] = {
        "subject": caller.subject,
        "agent": caller.agent,
        "tenant": caller.tenant,
        "tier": caller.tier,
        "token_id": caller.token_id,
        "delegation_chain": [_actor_form(*actor) for actor in caller.chain],
        "scopes": caller.scopes,
        "session_id": session,
        "peer": caller.peer,
        "expire_time": _timestamp(datetime.fromtimestamp(int(caller.expires_at), UTC)) if caller.token_id else "",
    }
    return {name: value for name, value in form.items() if value}


def _actor_form(subject: str, token_id: str) -> dict[str, str]:
    form = {"subject": subject, "token_id": token_id}
    return {name: value for name, value in form.items() if value}


def _timestamp(time: datetime) -> str:
    return f"{_second(int(time.timestamp()))}.{time.microsecond:06d}Z"


@lru_cache(maxsize=256)
def _second(seconds: int) -> str:
    # Cached, because formatting a date is slow and consecutive records mostly share their second.
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()


def _varint(number: int) -> bytes:
    """Encode a number as a Protobuf varint."""
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)
