"""Converts messages of AuditService. Defines the canonical form of a record, field by field.

The form is RFC 8785 JSON with the contract's field names. Unset fields are omitted. Enum values are words, times are
text in UTC with microseconds, the latency is in microseconds. Summaries are embedded as JSON. A record that the form
cannot represent is refused, because only the form is attested.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import orjson
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from google.protobuf.unknown_fields import UnknownFieldSet
from toolmesh.audit.v1 import audit_record_pb2 as record_pb
from toolmesh.audit.v1 import audit_service_pb2 as pb
from toolmesh.audit.v1 import checkpoint_pb2 as checkpoint_pb
from toolmesh.audit.v1 import shard_pb2 as shard_pb
from toolmesh.common.v1 import caller_pb2, error_reason_pb2

from libs.common.errors import MeshError
from libs.common.json.canonical import canonical
from libs.common.json.jsonio import dump, parse
from services.audit.convert import form
from services.audit.domain.errors import batch_kind_invalid, record_invalid, time_out_of_range
from services.audit.domain.log.append_batch import AppendedBatch, Candidate, all_or_none
from services.audit.domain.log.query_records import RecordPage, RecordQuery
from services.audit.domain.model import Entry, LoggedRecord, RecordFilter, SignedCheckpoint, searchable

# Readers get a record twice in one message, as fields and as bytes; this leaves room for both.
MAX_CANONICAL_BYTES = 1024 * 1024

# Fields with the same value in JSON.
_AS_IS = (
    "record_id",
    "trace_id",
    "invocation_id",
    "tool_version",
    "tool_digest",
    "operation",
    "mutation_class",
    "arguments_digest",
    "result_digest",
    "decision",
    "policy_set_version",
    "ticket",
    "idempotency_key",
    "replayed",
    "sandbox",
    "cost_micros",
    "follows",
    "previous_state",
    "state",
    "attempt",
    "task_id",
    "native_call_id",
    "executor_id",
    "state_path",
    "resumed_from",
    "compensation",
    "preview",
    "reduced_reason",
    "refused_calls",
    "cancellation",
    "observed_effect_count",
)
_LISTS = ("determining_policies", "side_effects", "argument_changes", "hooks", "violations", "declared_effects")
_EFFECT_LISTS = ("foreseen_effects", "observed_effects")
_SUMMARIES = ("arguments_summary", "result_summary")
# Records of the log about itself. These parts are written in full, including zeros; hashes in hexadecimal.
_OWN_PARTS: dict[str, Any] = {
    "previous_shard": shard_pb.ShardLink,
    "erasure": shard_pb.PayloadErasure,
    "hold": shard_pb.HoldChange,
    "archival": shard_pb.ShardArchival,
}
_OWN_CLASSES = {
    record_pb.EVENT_CLASS_SHARD_OPENED,
    record_pb.EVENT_CLASS_PAYLOAD_ERASED,
    record_pb.EVENT_CLASS_HOLD_PLACED,
    record_pb.EVENT_CLASS_HOLD_RELEASED,
    record_pb.EVENT_CLASS_SHARD_ARCHIVED,
}
_EFFECT_TEXTS = ("resource", "operation", "digest_before", "digest_after")
_CALLER_AS_IS = ("subject", "agent", "tenant", "token_id", "session_id", "peer")


def _words(enum: Any, prefix: str) -> dict[int, str]:
    return {number: name.removeprefix(prefix).lower() for name, number in enum.items() if number}


_EVENT_CLASSES = _words(record_pb.EventClass, "EVENT_CLASS_")
_OUTCOMES = _words(record_pb.AuthorizationOutcome, "AUTHORIZATION_OUTCOME_")
_STATUSES = _words(record_pb.RecordStatus, "RECORD_STATUS_")
_TIERS = _words(caller_pb2.CredentialTier, "CREDENTIAL_TIER_")
_EFFECT_SOURCES = _words(record_pb.EffectSource, "EFFECT_SOURCE_")
# The number is the code; the name is for readers. A reason newer than this build has no name.
_REASONS = {n: f"E{n} {word.upper()}" for n, word in _words(error_reason_pb2.ErrorReason, "ERROR_REASON_").items()}

_ENUMS: tuple[tuple[str, dict[int, str]], ...] = (
    ("event_class", _EVENT_CLASSES),
    ("authorization", _OUTCOMES),
    ("status", _STATUSES),
)
_NUMBERS = {name: {word: number for number, word in words.items()} for name, words in _ENUMS}
_TIER_NUMBERS = {word: number for number, word in _TIERS.items()}
_SOURCE_NUMBERS = {word: number for number, word in _EFFECT_SOURCES.items()}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _NoFormError(Exception):
    """A value has no canonical form. Names the field and the violated rule."""

    def __init__(self, path: str, rule: str) -> None:
        self.path, self.rule = path, rule
        super().__init__(f"{path}: {rule}")


# ---- records on their way in


def candidates_of(request: pb.AppendRecordsRequest, writer: str) -> list[Candidate]:
    """Return each record of the batch as an entry of `writer`, or as AUDIT_RECORD_INVALID if it has no canonical form
    or
    is of a class that only the log writes. An empty batch or one of both kinds raises INVALID_REQUEST."""
    if bool(request.records) == bool(request.canonical_records):
        raise batch_kind_invalid()
    if request.canonical_records:
        return form.candidates_of(request.canonical_records, writer)
    return [_candidate(record, writer, index) for index, record in enumerate(request.records)]


def entries_of(request: pb.AppendRecordsRequest, writer: str) -> list[Entry]:
    """Return the batch as entries of `writer`; raise the first refusal of `candidates_of`."""
    return all_or_none(candidates_of(request, writer))


def _candidate(record: record_pb.AuditRecord, writer: str, index: int) -> Candidate:
    if record.event_class in _OWN_CLASSES:
        return record_invalid(record.record_id, f"records[{index}].event_class", "event_class.own")
    try:
        return entry_of(record, writer, index)
    except MeshError as error:
        return error


def entry_of(record: record_pb.AuditRecord, writer: str, index: int = 0) -> Entry:
    """Return a record as an entry; raise AUDIT_RECORD_INVALID if it has no canonical form."""
    try:
        form_fields = canonical_form(record, writer)
        payload = orjson.dumps(form_fields, option=orjson.OPT_SORT_KEYS)
        if len(payload) > MAX_CANONICAL_BYTES:
            raise _NoFormError("", "record.max_bytes")
        event_time = _moment(record.event_time, "event_time")
    except _NoFormError as error:
        path = f"records[{index}].{error.path}".rstrip(".")
        raise record_invalid(record.record_id, path, error.rule) from error
    return Entry(
        record_id=record.record_id,
        canonical=payload,
        event_time=event_time,
        subject=searchable(record.caller.subject),
        tool_version=searchable(record.tool_version),
        trace_id=searchable(record.trace_id),
        invocation_id=searchable(record.invocation_id),
        authorization=form_fields.get("authorization", ""),
        status=form_fields.get("status", ""),
        ticket=searchable(record.ticket),
        resource=searchable(record.act.resource),
    )


def canonical_form(record: record_pb.AuditRecord, writer: str) -> dict[str, Any]:
    """Return the record as the object whose sorted JSON is hashed. Keys are ASCII and values are text, integers and
    booleans, for which orjson's sorted form is RFC 8785; summaries are embedded as canonical bytes."""
    _refuse_unknown_fields(record, "")
    form: dict[str, Any] = {name: value for name in _AS_IS if (value := getattr(record, name))}
    form["writer"] = writer
    form["event_time"] = _moment_text(record.event_time, "event_time")
    for name, words in _ENUMS:
        if number := getattr(record, name):
            form[name] = _word(words, number, name)
    for name in _LISTS:
        if items := getattr(record, name):
            form[name] = list(items)
    for name in _EFFECT_LISTS:
        if effects := getattr(record, name):
            form[name] = [_effect_form(effect, name) for effect in effects]
    if record.costs:
        form["costs"] = [_cost_form(cost) for cost in record.costs]
    for name in _SUMMARIES:
        if payload := getattr(record, name):
            form[name] = _embedded(payload, name)
    if record.HasField("caller"):
        form["caller"] = _caller_form(record.caller)
    if record.HasField("act"):
        form["act"] = _act_form(record.act)
    for name in _OWN_PARTS:
        if record.HasField(name):  # type: ignore[arg-type]
            form[name] = _own_form(getattr(record, name), name)
    if reason := record.error_reason:
        form["error_reason"] = _REASONS.get(reason, f"E{reason}")
    if record.HasField("latency"):
        form["latency_us"] = _microseconds(record.latency, "latency")
    return form


def _caller_form(caller: caller_pb2.Caller) -> dict[str, Any]:
    _refuse_unknown_fields(caller, "caller")
    form: dict[str, Any] = {name: value for name in _CALLER_AS_IS if (value := getattr(caller, name))}
    if caller.tier:
        form["tier"] = _word(_TIERS, caller.tier, "caller.tier")
    if caller.delegation_chain:
        form["delegation_chain"] = [_actor_form(actor) for actor in caller.delegation_chain]
    if caller.scopes:
        form["scopes"] = list(caller.scopes)
    if caller.HasField("expire_time"):
        form["expire_time"] = _moment_text(caller.expire_time, "caller.expire_time")
    return form


def _actor_form(actor: caller_pb2.Actor) -> dict[str, str]:
    _refuse_unknown_fields(actor, "caller.delegation_chain")
    return {name: value for name in ("subject", "token_id") if (value := getattr(actor, name))}


def _effect_form(effect: record_pb.RecordedEffect, path: str) -> dict[str, str]:
    _refuse_unknown_fields(effect, path)
    form = {name: value for name in _EFFECT_TEXTS if (value := getattr(effect, name))}
    if effect.source:
        form["source"] = _word(_EFFECT_SOURCES, effect.source, f"{path}.source")
    return form


def _cost_form(cost: record_pb.RecordedCost) -> dict[str, Any]:
    _refuse_unknown_fields(cost, "costs")
    return {name: value for name in ("category", "amount_micros") if (value := getattr(cost, name))}


def _act_form(act: record_pb.AdministrativeAct) -> dict[str, str]:
    _refuse_unknown_fields(act, "act")
    return {field.name: value for field in act.DESCRIPTOR.fields if (value := getattr(act, field.name))}


def _own_form(part: Any, path: str) -> dict[str, Any]:
    _refuse_unknown_fields(part, path)
    values = {field.name: getattr(part, field.name) for field in part.DESCRIPTOR.fields}
    return {name: value.hex() if isinstance(value, bytes) else value for name, value in values.items()}


def _embedded(payload: bytes, path: str) -> orjson.Fragment:
    try:
        return orjson.Fragment(canonical(parse(payload)))
    except MeshError as error:
        raise _NoFormError(path, error.reason.name.lower()) from error


def _word(words: Mapping[int, str], number: int, path: str) -> str:
    try:
        return words[number]
    except KeyError:
        raise _NoFormError(path, "enum.defined_only") from None


def _refuse_unknown_fields(message: Any, path: str) -> None:
    # A newer writer may send fields that this build would omit from the evidence.
    if len(UnknownFieldSet(message)):
        raise _NoFormError(path, "message.known_fields")


def _microseconds(duration: Duration, path: str) -> int:
    microseconds = duration.seconds * 1_000_000 + int(duration.nanos / 1000)
    if abs(microseconds) > form.MAX_LATENCY_US:
        raise _NoFormError(path, "duration.range")
    return microseconds


def _moment(stamp: Timestamp, path: str) -> datetime:
    if not 0 <= stamp.nanos < 1_000_000_000:
        raise _NoFormError(path, "timestamp.range")
    try:
        return _EPOCH + timedelta(0, stamp.seconds, stamp.nanos // 1000)
    except OverflowError:
        raise _NoFormError(path, "timestamp.range") from None


def _moment_text(stamp: Timestamp, path: str) -> str:
    if not 0 <= stamp.nanos < 1_000_000_000:
        raise _NoFormError(path, "timestamp.range")
    try:
        return f"{_second_text(stamp.seconds)}.{stamp.nanos // 1000:06d}Z"
    except OverflowError:
        raise _NoFormError(path, "timestamp.range") from None


@lru_cache(maxsize=256)
def _second_text(seconds: int) -> str:
    # Cached: records of a batch nearly always share their second, and formatting a date is slow.
    return (_EPOCH + timedelta(0, seconds)).replace(tzinfo=None).isoformat()


# ---- records on their way out


def record_of(payload: bytes) -> record_pb.AuditRecord:
    """Return the record of a canonical form. Its canonical form has the same bytes."""
    form = orjson.loads(payload)
    fields: dict[str, Any] = {name: form[name] for name in ("writer", *_AS_IS, *_LISTS) if name in form}
    fields.update((name, numbers[form[name]]) for name, numbers in _NUMBERS.items() if name in form)
    fields.update((name, dump(form[name])) for name in _SUMMARIES if name in form)
    record = record_pb.AuditRecord(event_time=to_timestamp(datetime.fromisoformat(form["event_time"])), **fields)
    for name in _EFFECT_LISTS:
        getattr(record, name).extend(_effect_of(effect) for effect in form.get(name, ()))
    record.costs.extend(record_pb.RecordedCost(**cost) for cost in form.get("costs", ()))
    if "caller" in form:
        record.caller.CopyFrom(_caller_of(form["caller"]))
    if "act" in form:
        record.act.CopyFrom(record_pb.AdministrativeAct(**form["act"]))
    for name, message in _OWN_PARTS.items():
        if name in form:
            getattr(record, name).CopyFrom(_own_part(message, form[name]))
    if "error_reason" in form:
        code = int(form["error_reason"].partition(" ")[0].removeprefix("E"))
        record.error_reason = error_reason_pb2.ErrorReason.ValueType(code)
    if "latency_us" in form:
        record.latency.FromMicroseconds(form["latency_us"])
    return record


def _effect_of(form: dict[str, str]) -> record_pb.RecordedEffect:
    source = record_pb.EffectSource.ValueType(_SOURCE_NUMBERS.get(form.get("source", ""), 0))
    return record_pb.RecordedEffect(source=source, **{name: form[name] for name in _EFFECT_TEXTS if name in form})


def _own_part(message: Any, form: dict[str, Any]) -> Any:
    hashes = {field.name for field in message.DESCRIPTOR.fields if field.type == FieldDescriptor.TYPE_BYTES}
    return message(**{name: bytes.fromhex(value) if name in hashes else value for name, value in form.items()})


def _caller_of(form: dict[str, Any]) -> caller_pb2.Caller:
    caller = caller_pb2.Caller(
        delegation_chain=[caller_pb2.Actor(**actor) for actor in form.get("delegation_chain", ())],
        scopes=form.get("scopes", ()),
        **{name: form[name] for name in _CALLER_AS_IS if name in form},
    )
    if "tier" in form:
        caller.tier = caller_pb2.CredentialTier.ValueType(_TIER_NUMBERS[form["tier"]])
    if "expire_time" in form:
        caller.expire_time.CopyFrom(to_timestamp(datetime.fromisoformat(form["expire_time"])))
    return caller


def to_timestamp(moment: datetime) -> Timestamp:
    """Return a time as a message."""
    since = moment - _EPOCH
    return Timestamp(seconds=since.days * 86_400 + since.seconds, nanos=since.microseconds * 1000)


def logged_record(logged: LoggedRecord) -> record_pb.LoggedRecord:
    """Return a stored record as a message."""
    return record_pb.LoggedRecord(
        name=f"logs/{logged.log_id}/records/{logged.sequence}",
        sequence=logged.sequence,
        record=record_of(logged.canonical) if logged.canonical else None,
        canonical_json=logged.canonical,
        leaf_hash=logged.leaf_hash,
        log_time=to_timestamp(logged.log_time),
        shard=logged.shard,
        erased_by=logged.erased_by or 0,
    )


# ---- questions and answers


def query_of(request: pb.QueryRecordsRequest, tenant: str) -> RecordQuery:
    """Return the query of a request by a reader of this tenant (empty: no tenant)."""
    return RecordQuery(filter_of(request.filter, tenant), request.ascending, request.page_size, request.page_token)


def filter_of(message: pb.RecordFilter, tenant: str = "") -> RecordFilter:
    """Return the filter of a message; a time outside the calendar raises INVALID_REQUEST."""
    return RecordFilter(
        from_time=_bound(message, "from_time"),
        to_time=_bound(message, "to_time"),
        subject=searchable(message.subject),
        tool_prefix=searchable(message.tool_prefix),
        trace_id=searchable(message.trace_id),
        invocation_id=searchable(message.invocation_id),
        authorization=_OUTCOMES.get(message.authorization, ""),
        status=_STATUSES.get(message.status, ""),
        ticket=searchable(message.ticket),
        resource_prefix=searchable(message.resource_prefix),
        acts_only=message.acts_only,
        tenant=tenant,
    )


def _bound(message: pb.RecordFilter, name: str) -> datetime | None:
    if not message.HasField(name):  # type: ignore[arg-type]
        return None
    try:
        return _moment(getattr(message, name), name)
    except _NoFormError:
        raise time_out_of_range(f"filter.{name}") from None


def appended_message(batch: int, appended: AppendedBatch) -> pb.AppendRecordsResponse:
    """Return the acknowledgement of a batch."""
    refused = [
        pb.RecordRefusal(index=refusal.index, record_id=refusal.record_id, path=refusal.path, rule=refusal.rule)
        for refusal in appended.refused
    ]
    return pb.AppendRecordsResponse(batch=batch, last_sequence=appended.last_sequence, refused=refused)


def page_message(page: RecordPage) -> pb.QueryRecordsResponse:
    """Return a page as a message."""
    return pb.QueryRecordsResponse(
        records=[logged_record(record) for record in page.records], next_page_token=page.next_page_token
    )


def checkpoint_message(signed: SignedCheckpoint) -> checkpoint_pb.Checkpoint:
    """Return a checkpoint as a message."""
    return checkpoint_pb.Checkpoint(
        log_id=signed.log_id,
        tree_size=signed.size,
        root_hash=signed.root,
        sign_time=to_timestamp(signed.sign_time),
        note=signed.note,
        key_id=signed.key_id,
        witness_signatures=signed.cosignatures,
        shard=signed.shard,
        first_sequence=signed.first_sequence,
    )
