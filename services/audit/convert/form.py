"""Validates records that arrive in canonical form, and takes them as they are.

The form is derived from the contract's descriptors and field rules (convert/audit.py describes it). A record is decoded
and encoded again: only identical bytes are canonical.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec
import orjson
from buf.validate import validate_pb2
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from msgspec import UNSET, Meta, Raw, UnsetType
from toolmesh.audit.v1 import audit_record_pb2 as record_pb
from toolmesh.common.v1 import error_reason_pb2

from libs.common.errors import MeshError
from libs.common.json.canonical import canonical
from libs.common.json.jsonio import MAX_DEPTH, parse
from services.audit.domain.errors import record_invalid
from services.audit.domain.log.append_batch import Candidate, all_or_none
from services.audit.domain.model import SEARCHABLE_CHARACTERS, Entry, searchable

_MOMENT = Annotated[str, Meta(min_length=27, max_length=27)]
MAX_LATENCY_US = 315_576_000_000 * 1_000_000
# A fractional number, or part of a text.
_FRACTION = re.compile(rb"[0-9][.eE]")
_REASONS = {f"E{n} {name.removeprefix('ERROR_REASON_')}" for name, n in error_reason_pb2.ErrorReason.items() if n}
_REASON_NUMBERS = {text.partition(" ")[0] for text in _REASONS}
_REQUIRED = frozenset({"record_id", "event_class", "event_time", "writer"})
# Only the log itself writes these fields, and the event classes of this range.
_OWN_FIELDS = frozenset({"previous_shard", "erasure", "hold", "archival"})
_OWN_CLASSES = range(record_pb.EVENT_CLASS_SHARD_OPENED, record_pb.EVENT_CLASS_SHARD_ARCHIVED + 1)
_NO_SUMMARY = Raw(b"")
_INT_BOUNDS = {FieldDescriptor.TYPE_INT32: 2**31, FieldDescriptor.TYPE_INT64: 2**63}


def _struct(message: Descriptor) -> type[msgspec.Struct]:
    """Return the struct type of a message, with its fields in the order of RFC 8785. Unset fields are omitted."""
    fields = sorted(_field(field) for field in message.fields if field.name not in _OWN_FIELDS)
    return msgspec.defstruct(
        message.name,
        [(name, kind) if default is None else (name, kind, default) for name, kind, default in fields],
        kw_only=True,
        omit_defaults=True,
        forbid_unknown_fields=True,
        gc=False,
    )


def _field(field: FieldDescriptor) -> tuple[str, Any, Any]:
    """Return the name of a field in the form, its type, and its default; None if the field is required."""
    name, kind, unset = field.name, *_value(field)
    if name == "latency":
        name = "latency_us"
    return name, kind, None if name in _REQUIRED else unset


def _value(field: FieldDescriptor) -> tuple[Any, Any]:
    rules = field.GetOptions().Extensions[validate_pb2.field]
    if field.is_repeated:
        item = _struct(field.message_type) if field.message_type else str
        longest = rules.repeated.max_items if rules.repeated.HasField("max_items") else None
        return Annotated[tuple[item, ...], Meta(max_length=longest)], ()  # type: ignore[valid-type]
    if field.message_type is not None:
        return _message(field.message_type), UNSET
    if field.enum_type is not None:
        return _enum(field.enum_type, required=field.name in _REQUIRED), ""
    if field.type == FieldDescriptor.TYPE_BYTES:
        return Raw, _NO_SUMMARY
    if field.type == FieldDescriptor.TYPE_BOOL:
        return bool, False
    if bound := _INT_BOUNDS.get(field.type):
        lowest = rules.int32.gte if rules.int32.HasField("gte") else -bound
        return Annotated[int, Meta(ge=lowest, le=bound - 1)], 0
    return _text(rules.string), ""


def _message(message: Descriptor) -> Any:
    if message.full_name == "google.protobuf.Timestamp":
        return _MOMENT | UnsetType
    if message.full_name == "google.protobuf.Duration":
        # The range of Duration: a longer one could not be returned to readers.
        return Annotated[int, Meta(ge=-MAX_LATENCY_US, le=MAX_LATENCY_US)] | UnsetType
    return _struct(message) | UnsetType


def _enum(kind: EnumDescriptor, *, required: bool) -> Any:
    if kind.name == "ErrorReason":
        return str
    prefix = kind.values_by_number[0].name.removesuffix("UNSPECIFIED")
    numbers = [n for n in kind.values_by_number if n and not (kind.name == "EventClass" and n in _OWN_CLASSES)]
    words = [kind.values_by_number[n].name.removeprefix(prefix).lower() for n in numbers]
    return Literal[tuple(words if required else ["", *words])]


def _text(rules: validate_pb2.StringRules) -> Any:
    longest = rules.max_len if rules.HasField("max_len") else None
    shortest = rules.min_len if rules.HasField("min_len") else None
    # In the contract `$` matches only the end of the text, not before a final newline.
    pattern = re.sub(r"\$$", r"\\Z", rules.pattern) or None
    return Annotated[str, Meta(max_length=longest, min_length=shortest, pattern=pattern)]


_SUMMARY_BYTES = int(
    record_pb.AuditRecord.DESCRIPTOR.fields_by_name["arguments_summary"]
    .GetOptions()
    .Extensions[validate_pb2.field]
    .bytes.max_len
)
_decoder: Any = msgspec.json.Decoder(_struct(record_pb.AuditRecord.DESCRIPTOR))
_encoder = msgspec.json.Encoder()
# Arguments appear twice, with the decision and the outcome, so recently validated ones are cached.
_REMEMBERED_SUMMARIES = 256
_NOT_DECODED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _InvalidFormError(Exception):
    def __init__(self, path: str, rule: str, record_id: str = "") -> None:
        self.path, self.rule, self.record_id = path, rule, record_id


def candidates_of(forms: Iterable[bytes], writer: str) -> list[Candidate]:
    """Return canonical forms as entries; one that is not canonical, or has another writer, as AUDIT_RECORD_INVALID."""
    payloads = list(forms)
    records = _decode_batch(payloads)
    candidates: list[Candidate] = []
    for index, payload in enumerate(payloads):
        try:
            candidates.append(_entry(records[index] if records else _decode_one(payload), payload, writer))
        except _InvalidFormError as error:
            path = f"canonical_records[{index}].{error.path}".rstrip(".")
            candidates.append(record_invalid(error.record_id, path, error.rule))
    return candidates


def entries_of(forms: Iterable[bytes], writer: str) -> list[Entry]:
    """Return canonical forms as entries; raise the first refusal of `candidates_of`."""
    return all_or_none(candidates_of(forms, writer))


def _decode_batch(payloads: Sequence[bytes]) -> list[Any]:
    """Decode a whole batch at once if all its forms are canonical; otherwise return an empty list. Canonical forms
    contain no newline, so they can be joined as lines."""
    lines = b"\n".join([*payloads, b""])
    if lines.count(b"\n") != len(payloads):
        return []
    try:
        records: list[Any] = _decoder.decode_lines(lines)
    except _NOT_DECODED:
        return []
    return records if _encoder.encode_lines(records) == lines else []


def _decode_one(payload: bytes) -> Any:
    """Decode one form, or raise what is wrong with it."""
    try:
        record = _decoder.decode(payload)
    except msgspec.ValidationError as error:
        # msgspec names the path at the end of its message; the text before it may contain a value.
        _, separator, path = str(error).rpartition(" - at `$.")
        raise _InvalidFormError(path.removesuffix("`") if separator else "", "record.form") from None
    except _NOT_DECODED:
        raise _InvalidFormError("", "record.json") from None
    if _encoder.encode(record) != payload:
        raise _InvalidFormError("", "record.canonical", record.record_id)
    return record


def _entry(record: Any, payload: bytes, writer: str) -> Entry:
    record_id = record.record_id
    if record.writer != writer:
        raise _InvalidFormError("writer", "record.writer", record_id)
    if record.error_reason:
        _check_reason(record)
    if record.arguments_summary is not _NO_SUMMARY:
        _check_summary(record.arguments_summary, "arguments_summary", record_id)
    if record.result_summary is not _NO_SUMMARY:
        _check_summary(record.result_summary, "result_summary", record_id)
    event_time = _moment(record.event_time, "event_time", record_id)
    caller = record.caller
    if caller is not UNSET and caller.expire_time is not UNSET:
        _moment(caller.expire_time, "caller.expire_time", record_id)
    subject = "" if caller is UNSET else caller.subject
    resource = "" if record.act is UNSET else record.act.resource
    index_texts: tuple[str, ...] = (
        subject,
        record.tool_version,
        record.trace_id,
        record.invocation_id,
        record.ticket,
        resource,
    )
    if b"\\u0000" in payload or len(subject) > SEARCHABLE_CHARACTERS:
        index_texts = tuple(map(searchable, index_texts))
    subject, tool_version, trace_id, invocation_id, ticket, resource = index_texts
    return Entry(
        record_id,
        payload,
        event_time,
        subject,
        tool_version,
        trace_id,
        invocation_id,
        record.authorization,
        record.status,
        ticket,
        resource,
    )


def _moment(text: str, path: str, record_id: str) -> datetime:
    """Return the time of a text in the contract's form: 2026-11-15T08:00:00.000000Z."""
    if (
        text[10] == "T"
        and text[4] == text[7] == "-"
        and text[13] == text[16] == ":"
        and text[19] == "."
        and text[26] == "Z"
    ):
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            raise _InvalidFormError(path, "timestamp.range", record_id) from None
    raise _InvalidFormError(path, "timestamp.range", record_id)


def _check_reason(record: Any) -> None:
    """Check code and name of an error reason. A reason newer than this build is a code without a name."""
    reason: str = record.error_reason
    if reason not in _REASONS:
        code = reason[1:]
        known = reason in _REASON_NUMBERS or not (code.isdecimal() and code.isascii() and 0 < int(code) < 2**31)
        if known or reason[0] != "E" or code[0] == "0":
            raise _InvalidFormError("error_reason", "enum.defined_only", record.record_id)


def _check_summary(summary: Raw, path: str, record_id: str) -> None:
    payload = bytes(summary)
    if len(payload) > _SUMMARY_BYTES:
        raise _InvalidFormError(path, "bytes.max_len", record_id)
    try:
        if not _is_canonical(payload):
            raise _InvalidFormError(path, "record.canonical", record_id)
    except (MeshError, orjson.JSONDecodeError) as error:
        raise _InvalidFormError(path, "record.json", record_id) from error


@lru_cache(maxsize=_REMEMBERED_SUMMARIES)
def _is_canonical(payload: bytes) -> bool:
    return _plainly_canonical(payload) or canonical(parse(payload)) == payload


def _plainly_canonical(payload: bytes) -> bool:
    """Return whether a value is canonical, by a fast check that never accepts wrongly: for ASCII without fractions,
    identical bytes after decoding and encoding exclude duplicates, rounding and wrong order."""
    return (
        payload.isascii()
        and payload.count(b"{") + payload.count(b"[") < MAX_DEPTH
        and not _FRACTION.search(payload)
        and orjson.dumps(orjson.loads(payload), option=orjson.OPT_SORT_KEYS) == payload
    )
