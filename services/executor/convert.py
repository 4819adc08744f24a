"""Messages to the domain and back. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from google.protobuf.duration_pb2 import Duration
from toolmesh.executor.v1 import executor_service_pb2 as pb
from toolmesh.executor.v1 import result_envelope_pb2 as epb

from libs.common.auth.identity import Identity
from libs.common.auth.tokens import CLOCK_SKEW
from libs.common.rpc.call import Call
from services.executor.domain.model import Caller, Deprecation, Request, Result, Source

_SOURCES = {source: epb.ResultSource.Value(f"RESULT_SOURCE_{source}") for source in Source}
_SOURCE_NAMES = {number: source for source, number in _SOURCES.items()}


def request_of(message: pb.InvokeRequest, call: Call) -> Request:
    """Return the call that was asked for and who asks."""
    return Request(
        tool=message.tool,
        version=message.version,
        arguments=message.arguments,
        idempotency_key=message.idempotency_key,
        task_id=message.task_id,
        native_call_id=message.native_call_id,
        tool_digest=message.tool_digest,
        caller=caller_of(call.caller, message.session_id, call.peer),
        trace_id=call.trace.trace_id,
        deadline=call.deadline,
    )


def caller_of(identity: Identity, session_id: str, peer: str) -> Caller:
    """Return the caller behind a verified token."""
    return Caller(
        subject=identity.subject,
        token_id=identity.token_id,
        expires_at=identity.expires_at,
        authority_ends=identity.expires_at + CLOCK_SKEW,
        tier=identity.tier,
        agent=identity.agent,
        tenant=identity.tenant,
        scopes=tuple(sorted(identity.scopes)),
        chain=identity.chain,
        session_id=session_id or identity.session_id,
        peer=peer,
        descent=identity.descent,
        confined=identity if identity.resources or identity.argument_constraints else None,
    )


def response_of(result: Result) -> pb.InvokeResponse:
    """Return the answer."""
    return pb.InvokeResponse(result=_envelope_fields(result))


def envelope_of(result: Result) -> epb.ResultEnvelope:
    """Return a result as its envelope."""
    return epb.ResultEnvelope(**_envelope_fields(result))


def _envelope_fields(result: Result) -> Any:
    """The fields of an envelope, as nested dictionaries: message objects for its parts would each be built and copied."""
    created = _stamp(result.created)
    fields: dict[str, Any] = {
        "result_id": result.result_id,
        "invocation_id": result.invocation_id,
        "status": epb.RESULT_STATUS_SUCCEEDED,
        "structured_content": result.content,
        "provenance": {
            "tool_version": result.tool_version,
            "tool_digest": result.tool_digest,
            "source": _SOURCES[result.source],
            "retrieve_time": created,
        },
        "execution": {
            "total": _duration(result.total),
            "phases": [{"phase": name, "duration": _duration(taken)} for name, taken in result.phases],
            "attempts": result.attempts,
            "sandbox_ref": result.sandbox,
            "result_size_bytes": len(result.content),
        },
        "replayed": result.replayed,
        "adjusted_arguments": result.adjusted,
        "redaction_state": epb.REDACTION_STATE_PARTIAL if result.changed else epb.REDACTION_STATE_NONE,
        "adjusted_result": result.changed,
        "evidence_refs": result.evidence,
        "policy_refs": result.policies,
        "trace_id": result.trace_id,
        "create_time": created,
    }
    if result.deprecation is not None:
        fields["deprecation"] = _notice(result.deprecation)
    return fields


def result_of(envelope: epb.ResultEnvelope) -> Result:
    """Return the result in an envelope that this executor made."""
    execution, provenance = envelope.execution, envelope.provenance
    return Result(
        result_id=envelope.result_id,
        invocation_id=envelope.invocation_id,
        content=envelope.structured_content,
        tool_version=provenance.tool_version,
        tool_digest=provenance.tool_digest,
        source=_SOURCE_NAMES[provenance.source],
        created=envelope.create_time.ToDatetime(tzinfo=UTC),
        total=_seconds(execution.total),
        phases=tuple((phase.phase, _seconds(phase.duration)) for phase in execution.phases),
        attempts=execution.attempts,
        sandbox=execution.sandbox_ref,
        trace_id=envelope.trace_id,
        adjusted=tuple(envelope.adjusted_arguments),
        changed=tuple(envelope.adjusted_result),
        deprecation=_deprecation(envelope.deprecation) if envelope.HasField("deprecation") else None,
        evidence=tuple(envelope.evidence_refs),
        policies=tuple(envelope.policy_refs),
        replayed=envelope.replayed,
    )


def _notice(deprecation: Deprecation) -> dict[str, Any]:
    notice: dict[str, Any] = {
        "successor": deprecation.successor,
        "migration_guide_url": deprecation.migration_guide_url,
    }
    if deprecation.sunset_time is not None:
        notice["sunset_time"] = _stamp(deprecation.sunset_time)
    return notice


def _deprecation(notice: epb.DeprecationNotice) -> Deprecation:
    sunset = notice.sunset_time.ToDatetime(tzinfo=UTC) if notice.HasField("sunset_time") else None
    return Deprecation(sunset, notice.successor, notice.migration_guide_url)


def _stamp(moment: datetime) -> dict[str, int]:
    return {"seconds": int(moment.timestamp()), "nanos": moment.microsecond * 1000}


def _duration(seconds: float) -> dict[str, int]:
    whole = int(seconds)
    return {"seconds": whole, "nanos": int((seconds - whole) * 1e9)}


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9
