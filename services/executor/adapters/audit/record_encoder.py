"""Records on their way to the log: each is written once, as the bytes that will be hashed and as a piece of the batch that
will carry it. What the form looks like is the log's contract; docs/audit.md has it field by field."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import orjson
from toolmesh.audit.v1 import audit_service_pb2 as pb

from libs.common.redaction.tenant_scanners import TenantScanners
from services.executor.domain.model import Caller, Event, Record, Request, Status, Verdict
from services.executor.domain.tool import Effect, Tool

WRITER = "executor"
_EVENTS = {event: event.value.lower() for event in Event}
_STATUSES = {status: "" if status is Status.BEGUN else status.value.lower() for status in Status}
_OUTCOMES = {Verdict.ALLOW: "allow", Verdict.DENY: "deny", Verdict.NEEDS_APPROVAL: "requires_approval"}
# The contract's limits for a record; what lies beyond them is in the decision and in the manifest.
_MAX_POLICIES = _MAX_LISTED = 64
_MAX_NAME = 512
_MAX_KEY, _MAX_TASK, _MAX_CALL_ID = 255, 128, 255
_REMEMBERED_CALLERS = 4096


# What Protobuf writes before each record of a batch: which field it is, and that its length follows.
_MARK = bytes([pb.AppendRecordsRequest.CANONICAL_RECORDS_FIELD_NUMBER << 3 | 2])


class RecordWriter:
    """Turns records into fragments of an AppendRecordsRequest. Serialised messages that follow one another are one message
    (that is how Protobuf merges), so a batch is its number followed by its fragments, and nothing is built twice."""

    def __init__(self, executor_id: str, scanners: TenantScanners | None = None) -> None:
        self._executor_id, self._scanners = executor_id, scanners or TenantScanners()
        self._callers: dict[tuple[str, str, str], orjson.Fragment] = {}

    def fragment(self, record: Record) -> bytes:
        """Return a serialised batch of this one record, without a number."""
        # Keys are ASCII and values text, whole numbers and booleans, for which this is RFC 8785.
        form = orjson.dumps(self._form(record), option=orjson.OPT_SORT_KEYS)
        return _MARK + _varint(len(form)) + form

    def _form(self, record: Record) -> dict[str, Any]:
        """The fields that say something; what is empty has no place in the form."""
        request = record.request
        form: dict[str, Any] = {
            "record_id": record.record_id,
            "event_class": _EVENTS[record.event],
            "event_time": _moment(record.time),
            "writer": WRITER,
            "invocation_id": record.invocation_id,
            "caller": self._caller(request.caller),
            "executor_id": self._executor_id,
            "state": record.state,
        }
        if request.trace_id:
            form["trace_id"] = request.trace_id
        if record.previous_state:
            form["previous_state"] = record.previous_state
        if status := _STATUSES[record.status]:
            form["status"] = status
        self._add_names(form, record)
        if record.follows:
            form["follows"] = record.follows
        if record.attempt:
            form["attempt"] = record.attempt
            if record.sandbox:
                form["sandbox"] = record.sandbox
        self._add_tool(form, record)
        _add_decision(form, record)
        _add_outcome(form, record)
        self._add_story(form, record)
        return form

    def _add_names(self, form: dict[str, Any], record: Record) -> None:
        """What the caller calls things, and what it must not be able to put on record that way. What stands for a secret may be
        longer than it: names that outgrew their limit would have the log refuse the record, and a caller could choose that."""
        request = record.request
        if request.idempotency_key:
            form["idempotency_key"] = self._shown(request.idempotency_key, request)[:_MAX_KEY]
            if record.replayed:
                form["replayed"] = True
        if request.task_id:
            form["task_id"] = self._shown(request.task_id, request)[:_MAX_TASK]
        if request.native_call_id:
            form["native_call_id"] = self._shown(request.native_call_id, request)[:_MAX_CALL_ID]

    def _shown(self, text: str, request: Request) -> str:
        return str(self._scanners.of(request.caller.tenant).text(text).value)

    def _add_tool(self, form: dict[str, Any], record: Record) -> None:
        tool, request = record.tool, record.request
        if tool is None:
            asked = f"{request.tool}@{request.version}" if request.version else request.tool
            if shown := self._shown(asked, request)[:_MAX_NAME]:
                form["tool_version"] = shown
            return
        form["tool_version"], form["tool_digest"] = tool.name, tool.digest
        form["mutation_class"] = tool.mutation
        if tool.side_effects:
            form["side_effects"] = tool.side_effects[:_MAX_LISTED]

    def _add_story(self, form: dict[str, Any], record: Record) -> None:
        """How the call came to its outcome: what happened to its arguments, who had a say, and what it left behind."""
        if record.state_path:
            form["state_path"] = record.state_path
        if record.preview:
            form["preview"] = True
        if record.changes:
            told = [f"{change.source} {_place(record.tool, change.path)} {change.reason}" for change in record.changes]
            form["argument_changes"] = self._listed(told, record.request)
        if record.hooks:
            form["hooks"] = self._listed(record.hooks, record.request)
        if record.effects:
            # What was seen takes the place of what was declared; the manifest has that.
            form["side_effects"] = self._listed(_effects(record.effects), record.request)
        if record.violations:
            form["violations"] = self._listed(_effects(record.violations), record.request)
        if record.undone_by:
            form["compensation"] = record.undone_by
        if record.cost_micros:
            form["cost_micros"] = record.cost_micros

    def _listed(self, texts: Sequence[str], request: Request) -> list[str]:
        """Texts that name what a caller or a tool named, without what must not be on record. Where there are more of them than a record takes,
        the last says how many more: a list that merely ends would hide them."""
        fitting = len(texts) if len(texts) <= _MAX_LISTED else _MAX_LISTED - 1
        listed = [self._shown(text.strip(), request)[:_MAX_NAME] for text in texts[:fitting]]
        return listed if fitting == len(texts) else [*listed, f"and {len(texts) - fitting} more"]

    def _caller(self, caller: Caller) -> orjson.Fragment:
        """Return the caller as it is written. Calls with one token come in rows, so it is remembered."""
        key = (caller.token_id, caller.session_id, caller.peer)
        known = self._callers.get(key)
        if known is None:
            if len(self._callers) >= _REMEMBERED_CALLERS:
                self._callers.clear()
            session = str(self._scanners.of(caller.tenant).text(caller.session_id).value)
            form = orjson.dumps(_caller_form(caller, session), option=orjson.OPT_SORT_KEYS)
            known = self._callers[key] = orjson.Fragment(form)
        return known


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


def _place(tool: Tool | None, pointer: str) -> str:
    """Where arguments were changed. What is declared sensitive is so with all the names in it."""
    declared = None if tool is None else tool.input.declared
    return pointer if declared is None else declared.named(pointer)


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
        "expire_time": _moment(datetime.fromtimestamp(int(caller.expires_at), UTC)),
    }
    return {name: value for name, value in form.items() if value}


def _actor_form(subject: str, token_id: str) -> dict[str, str]:
    form = {"subject": subject, "token_id": token_id}
    return {name: value for name, value in form.items() if value}


def _moment(moment: datetime) -> str:
    return f"{_second(int(moment.timestamp()))}.{moment.microsecond:06d}Z"


@lru_cache(maxsize=256)
def _second(seconds: int) -> str:
    # Records that are written together nearly always share their second, and writing a date out is slow.
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()


def _varint(number: int) -> bytes:
    """A length as Protobuf writes it."""
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)
