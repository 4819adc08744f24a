"""Records on their way to the log: each is built and serialised once, as a piece of the batch that will carry it."""

from __future__ import annotations

from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.audit.v1 import audit_record_pb2 as rpb
from toolmesh.audit.v1 import audit_service_pb2 as pb
from toolmesh.common.v1 import caller_pb2 as cpb

from libs.common.redaction.book import ScannerBook
from services.executor.domain.model import Caller, Event, Record, Request, Status, Verdict

_EVENTS = {event: rpb.EventClass.Value(f"EVENT_CLASS_{event}") for event in Event}
_STATUSES = {status: rpb.RecordStatus.Value(f"RECORD_STATUS_{status}") for status in Status}
_OUTCOMES = {
    Verdict.ALLOW: rpb.AUTHORIZATION_OUTCOME_ALLOW,
    Verdict.DENY: rpb.AUTHORIZATION_OUTCOME_DENY,
    Verdict.NEEDS_APPROVAL: rpb.AUTHORIZATION_OUTCOME_REQUIRES_APPROVAL,
}
_TIERS = {name.removeprefix("CREDENTIAL_TIER_").lower(): number for name, number in cpb.CredentialTier.items()}
# The contract's limits for a record; what lies beyond them is in the decision and in the manifest.
_MAX_POLICIES = _MAX_SIDE_EFFECTS = 64
_MAX_NAME = 512
_REMEMBERED_CALLERS = 4096


class RecordWriter:
    """Turns records into fragments of an AppendRecordsRequest. Serialised messages that follow one another are one message
    (that is how Protobuf merges), so a batch is its number followed by its fragments, and nothing is built twice."""

    def __init__(self, executor_id: str, scanners: ScannerBook | None = None) -> None:
        self._executor_id, self._scanners = executor_id, scanners or ScannerBook()
        self._callers: dict[tuple[str, str, str], cpb.Caller] = {}

    def fragment(self, record: Record) -> bytes:
        """Return a serialised batch of this one record, without a number."""
        batch = pb.AppendRecordsRequest()
        batch.records.add(**self._fields(record))
        return batch.SerializeToString()

    def _fields(self, record: Record) -> dict[str, Any]:
        """The fields that say something. An empty one costs as much to set as a full one."""
        request, moment = record.request, record.time
        fields: dict[str, Any] = {
            "record_id": record.record_id,
            "event_class": _EVENTS[record.event],
            "event_time": {"seconds": int(moment.timestamp()), "nanos": moment.microsecond * 1000},
            "trace_id": request.trace_id,
            "invocation_id": record.invocation_id,
            "caller": self._caller(request.caller),
            "executor_id": self._executor_id,
            "previous_state": record.previous_state or "",
            "state": record.state,
            "status": _STATUSES[record.status],
        }
        self._add_names(fields, record)
        if record.follows:
            fields["follows"] = record.follows
        if record.attempt:
            fields["attempt"], fields["sandbox"] = record.attempt, record.sandbox
        self._add_tool(fields, record)
        self._add_outcome(fields, record)
        return fields

    def _add_names(self, fields: dict[str, Any], record: Record) -> None:
        """What the caller calls things, and what it must not be able to put on record that way."""
        request = record.request
        if request.idempotency_key:
            fields["idempotency_key"] = self._shown(request.idempotency_key, request)
            fields["replayed"] = record.replayed
        if request.task_id:
            fields["task_id"] = self._shown(request.task_id, request)
        if request.native_call_id:
            fields["native_call_id"] = self._shown(request.native_call_id, request)

    def _shown(self, text: str, request: Request) -> str:
        return str(self._scanners.of(request.caller.tenant).text(text).value)

    def _add_tool(self, fields: dict[str, Any], record: Record) -> None:
        tool, decision, request = record.tool, record.decision, record.request
        if tool is None:
            asked = f"{request.tool}@{request.version}" if request.version else request.tool
            fields["tool_version"] = self._shown(asked, request)[:_MAX_NAME]
        else:
            fields["tool_version"], fields["tool_digest"] = tool.name, tool.digest
            fields["mutation_class"] = tool.mutation
            if tool.side_effects:
                fields["side_effects"] = tool.side_effects[:_MAX_SIDE_EFFECTS]
        if decision is not None:
            fields["authorization"] = _OUTCOMES[decision.verdict]
            fields["decision"] = decision.name
            fields["determining_policies"] = decision.policies[:_MAX_POLICIES]
            fields["policy_set_version"] = decision.policy_set_version

    def _add_outcome(self, fields: dict[str, Any], record: Record) -> None:
        if record.arguments is not None:
            fields["arguments_digest"] = record.arguments.digest
            fields["arguments_summary"] = record.arguments.summary
        if record.result is not None:
            fields["result_digest"], fields["result_summary"] = record.result.digest, record.result.summary
        if record.reason is not None:
            fields["error_reason"] = int(record.reason)
        if record.latency is not None:
            fields["latency"] = _duration(record.latency)

    def _caller(self, caller: Caller) -> cpb.Caller:
        """Return the caller as a message. Calls with one token come in rows, so it is remembered."""
        key = (caller.token_id, caller.session_id, caller.peer)
        known = self._callers.get(key)
        if known is None:
            if len(self._callers) >= _REMEMBERED_CALLERS:
                self._callers.clear()
            session = str(self._scanners.of(caller.tenant).text(caller.session_id).value)
            known = self._callers[key] = _caller_message(caller, session)
        return known


def _caller_message(caller: Caller, session: str) -> cpb.Caller:
    return cpb.Caller(
        subject=caller.subject,
        agent=caller.agent,
        tenant=caller.tenant,
        tier=cpb.CredentialTier.ValueType(_TIERS.get(caller.tier, 0)),
        token_id=caller.token_id,
        delegation_chain=[cpb.Actor(subject=subject, token_id=token_id) for subject, token_id in caller.chain],
        scopes=caller.scopes,
        session_id=session,
        peer=caller.peer,
        expire_time=Timestamp(seconds=int(caller.expires_at)),
    )


def _duration(seconds: float) -> dict[str, int]:
    whole = int(seconds)
    return {"seconds": whole, "nanos": int((seconds - whole) * 1e9)}
