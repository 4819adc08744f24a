"""Messages to the domain and back. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.executor.v1 import executor_service_pb2 as pb
from toolmesh.executor.v1 import result_envelope_pb2 as epb

from libs.common.auth.coverage import outside_session
from libs.common.auth.identity import Identity
from libs.common.auth.tokens import CLOCK_SKEW
from libs.common.call_context import Call
from libs.common.json.jsonio import dump
from services.executor.domain.argument_spec import Change
from services.executor.domain.model import (
    PLAIN,
    Caller,
    CallWarning,
    PreviewResult,
    RenderedResult,
    Request,
    Result,
    Source,
    StoredResult,
)
from services.executor.domain.resources.watch_resources import WatchEvent
from services.executor.domain.results.fetch_result import Piece
from services.executor.domain.results.size_limits import truncate_effects
from services.executor.domain.tool import Deprecation, Effect

_SOURCES = {source: epb.ResultSource.Value(f"RESULT_SOURCE_{source}") for source in Source}
# The unit of every cost in the mesh.
CURRENCY = "USD"
# The tool of an upstream that stands for `resources/subscribe`.
SUBSCRIBE_TOOL = "resources_subscribe"
_CAPABILITIES = {
    pb.CALLER_CAPABILITY_ELICITATION: "elicitation",
    pb.CALLER_CAPABILITY_SAMPLING: "sampling",
    pb.CALLER_CAPABILITY_ROOTS: "roots",
}
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
        priority=message.priority,
        preview_token=message.preview_token,
        ticket=message.ticket,
        caller=caller_of(call.caller, message.session_id, call.peer),
        trace_id=call.trace.trace_id,
        deadline=call.deadline,
        caller_capabilities=tuple(_CAPABILITIES[each] for each in message.caller_capabilities),
    )


def subscriptions_of(message: pb.WatchResourcesRequest, call: Call) -> dict[str, Request]:
    """Return, for each resource, the call that subscribes to it."""
    tool = f"{message.upstream}.{SUBSCRIBE_TOOL}"
    return {uri: request_of(pb.InvokeRequest(tool=tool, arguments=dump({"uri": uri})), call) for uri in message.uris}


def watch_response_of(event: WatchEvent) -> pb.WatchResourcesResponse:
    """Return what a watch reports."""
    if event.updated:
        return pb.WatchResourcesResponse(updated_uri=event.updated)
    return pb.WatchResourcesResponse(watching=pb.WatchedResources(uris=event.watching))


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
        session_id=identity.session_id or session_id,
        other_session=outside_session(identity, session_id),
        peer=peer,
        grants=identity.tools,
        token_lineage=identity.token_lineage,
        confined=identity if identity.resources or identity.argument_constraints else None,
    )


def response_of(result: Result) -> pb.InvokeResponse:
    """Return the answer."""
    response = pb.InvokeResponse()
    _fill(response.result, result)
    return response


def preview_of(foreseen: PreviewResult) -> pb.PreviewInvocationResponse:
    """Return what a call would do."""
    forecast = foreseen.forecast
    return pb.PreviewInvocationResponse(
        invocation_id=foreseen.invocation_id,
        changes=[epb.ObservedEffect(**effect_fields(change)) for change in truncate_effects(forecast.changes)],
        change_count=len(forecast.changes),
        declared_effects=[_declared(effect) for effect in foreseen.declared],
        preconditions=[pb.Precondition(description=text, holds=holds) for text, holds in forecast.preconditions],
        impact=forecast.impact,
        predicted_result=foreseen.result,
        result_left_out=foreseen.left_out,
        approval_required=foreseen.approval_required,
        preview_token=foreseen.token,
        expire_time=_timestamp(foreseen.expires),
        tool_version=foreseen.tool_version,
        trace_id=foreseen.trace_id,
    )


def piece_of(piece: Piece) -> pb.FetchResultResponse:
    """Return a piece of a stored result."""
    head = piece.head
    return pb.FetchResultResponse(
        content=piece.content,
        offset=piece.offset,
        size_bytes=head.size,
        digest=head.digest,
        media_type=head.media_type,
    )


def envelope_of(result: Result) -> epb.ResultEnvelope:
    """Return a result as its envelope."""
    envelope = epb.ResultEnvelope()
    _fill(envelope, result)
    return envelope


def _fill(envelope: epb.ResultEnvelope, result: Result) -> None:
    """Write a result into an envelope, field by field and in place: parts built apart would each be copied."""
    envelope.result_id = result.result_id
    envelope.invocation_id = result.invocation_id
    envelope.status = epb.RESULT_STATUS_SUCCEEDED
    envelope.structured_content = result.content
    envelope.trace_id = result.trace_id
    envelope.redaction_state = epb.REDACTION_STATE_PARTIAL if result.changed else epb.REDACTION_STATE_NONE
    envelope.evidence_refs.extend(result.evidence)
    envelope.policy_refs.extend(result.policies)
    provenance, created = envelope.provenance, result.created
    provenance.tool_version = result.tool_version
    provenance.tool_digest = result.tool_digest
    provenance.source = _SOURCES[result.source]
    _set_moment(provenance.retrieve_time, result.retrieved or created)
    _set_moment(envelope.create_time, created)
    _fill_execution(envelope.execution, result)
    if result.replayed:
        envelope.replayed = True
    if result.rendered is not PLAIN:
        envelope.model_facing_content = result.rendered.model
        envelope.ui_facing_summary = result.rendered.ui
        envelope.transcript_search_text = result.rendered.search
    if seldom := _seldom(result):
        envelope.MergeFrom(epb.ResultEnvelope(**seldom))


def _fill_execution(execution: epb.ExecutionMetadata, result: Result) -> None:
    _set_seconds(execution.total, result.total)
    for name, taken in result.phases:
        phase = execution.phases.add()
        phase.phase = name
        _set_seconds(phase.duration, taken)
    execution.attempts = result.attempts
    execution.sandbox_ref = result.sandbox
    execution.result_size_bytes = len(result.content) if result.stored is None else result.stored.size
    for category, micros in result.costs:
        execution.costs.add(category=category, amount_micros=micros, currency=CURRENCY)


def _seldom(result: Result) -> dict[str, Any]:
    """The fields that most results do not have."""
    fields: dict[str, Any] = {}
    if result.changed:
        fields["adjusted_result"] = result.changed
    if result.deprecation is not None:
        fields["deprecation"] = _notice(result.deprecation)
    if result.changes:
        fields["adjusted_arguments"] = [change.path for change in result.changes]
        fields["argument_changes"] = [
            {"path": change.path, "source": change.source, "reason": change.reason} for change in result.changes
        ]
    if result.context:
        fields["additional_context"] = result.context
    if result.effects:
        fields["effects"] = [effect_fields(effect) for effect in result.effects]
        fields["effect_count"] = result.effect_count
    if result.declared:
        fields["declared_effects"] = [_declared(effect) for effect in result.declared]
    if result.undone_by:
        fields["compensation"] = {"tool": result.undone_by, "arguments": result.undo}
    if result.stored is not None:
        fields["persisted"] = [_persisted(result.stored)]
    if result.warnings:
        fields["warnings"] = [warning._asdict() for warning in result.warnings]
    return fields


def effect_fields(effect: Effect) -> dict[str, Any]:
    """The fields of an effect."""
    source = epb.EFFECT_SOURCE_OBSERVED if effect.observed else epb.EFFECT_SOURCE_REPORTED
    return {
        "resource": effect.resource,
        "operation": effect.operation,
        "source": source,
        "digest_before": effect.before,
        "digest_after": effect.after,
    }


def _declared(effect: Effect) -> epb.DeclaredEffect:
    return epb.DeclaredEffect(resource=effect.resource, operation=effect.operation)


def _persisted(stored: StoredResult) -> dict[str, Any]:
    return {
        "ref": stored.ref,
        "preview": stored.preview,
        "size_bytes": stored.size,
        "media_type": stored.media_type,
        "digest": stored.digest,
        "expire_time": _stamp(stored.expires),
        "access_token": stored.token,
    }


def result_of(envelope: epb.ResultEnvelope) -> Result:
    """Return the result in an envelope that this executor made."""
    execution, provenance = envelope.execution, envelope.provenance
    created, retrieved = (moment.ToDatetime(tzinfo=UTC) for moment in (envelope.create_time, provenance.retrieve_time))
    return Result(
        result_id=envelope.result_id,
        invocation_id=envelope.invocation_id,
        content=envelope.structured_content,
        tool_version=provenance.tool_version,
        tool_digest=provenance.tool_digest,
        source=_SOURCE_NAMES[provenance.source],
        created=created,
        total=_seconds(execution.total),
        phases=tuple((phase.phase, _seconds(phase.duration)) for phase in execution.phases),
        attempts=execution.attempts,
        sandbox=execution.sandbox_ref,
        trace_id=envelope.trace_id,
        changes=tuple(Change(each.path, each.source, each.reason) for each in envelope.argument_changes),
        changed=tuple(envelope.adjusted_result),
        deprecation=_deprecation(envelope.deprecation) if envelope.HasField("deprecation") else None,
        evidence=tuple(envelope.evidence_refs),
        policies=tuple(envelope.policy_refs),
        replayed=envelope.replayed,
        context=tuple(envelope.additional_context),
        effects=tuple(
            Effect(
                each.resource,
                each.operation,
                each.source == epb.EFFECT_SOURCE_OBSERVED,
                each.digest_before,
                each.digest_after,
            )
            for each in envelope.effects
        ),
        effect_count=envelope.effect_count,
        declared=tuple(Effect(each.resource, each.operation) for each in envelope.declared_effects),
        costs=tuple((cost.category, cost.amount_micros) for cost in execution.costs),
        undone_by=envelope.compensation.tool,
        undo=envelope.compensation.arguments,
        stored=_stored(envelope.persisted[0]) if envelope.persisted else None,
        rendered=RenderedResult(
            envelope.model_facing_content, envelope.ui_facing_summary, envelope.transcript_search_text
        ),
        retrieved=None if retrieved == created else retrieved,
        warnings=tuple(CallWarning(each.code, each.message, each.resource) for each in envelope.warnings),
    )


def _stored(message: epb.PersistedResult) -> StoredResult:
    return StoredResult(
        ref=message.ref,
        preview=message.preview,
        size=message.size_bytes,
        digest=message.digest,
        expires=message.expire_time.ToDatetime(tzinfo=UTC),
        token=message.access_token,
        media_type=message.media_type,
    )


def _notice(deprecation: Deprecation) -> dict[str, Any]:
    notice: dict[str, Any] = {
        "successor": deprecation.successor,
        "migration_guide_url": deprecation.migration_guide_url,
    }
    if deprecation.sunset_time is not None:
        notice["sunset_time"] = _stamp(deprecation.sunset_time)
    if deprecation.deprecate_time is not None:
        notice["deprecate_time"] = _stamp(deprecation.deprecate_time)
    return notice


def _deprecation(notice: epb.DeprecationNotice) -> Deprecation:
    sunset = notice.sunset_time.ToDatetime(tzinfo=UTC) if notice.HasField("sunset_time") else None
    since = notice.deprecate_time.ToDatetime(tzinfo=UTC) if notice.HasField("deprecate_time") else None
    return Deprecation(sunset, notice.successor, notice.migration_guide_url, since)


def _stamp(moment: datetime) -> dict[str, int]:
    return {"seconds": int(moment.timestamp()), "nanos": moment.microsecond * 1000}


def _timestamp(moment: datetime) -> Timestamp:
    return Timestamp(**_stamp(moment))


def _set_moment(stamp: Timestamp, moment: datetime) -> None:
    stamp.seconds = int(moment.timestamp())
    stamp.nanos = moment.microsecond * 1000


def _set_seconds(duration: Duration, seconds: float) -> None:
    whole = int(seconds)
    duration.seconds = whole
    duration.nanos = int((seconds - whole) * 1e9)


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9
