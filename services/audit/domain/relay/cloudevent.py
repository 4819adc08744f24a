"""Records as CloudEvents 1.0 in structured JSON.

The data of an event is the record's canonical form, byte for byte, so that receivers can recompute the leaf hash.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from libs.common.json.jsonio import dump
from services.audit.domain.model import LoggedRecord
from services.audit.domain.relay.moments import moments_of

CONTENT_TYPE = "application/cloudevents+json"
TYPE_PREFIX = "dev.toolmesh."
ERASED_TYPE = TYPE_PREFIX + "record.erased"
# Brokers accept 1 MiB by default. A larger record is sent without data and with a reference to the log.
MAX_DATA_BYTES = 900_000
# Padded to the digits of the largest sequence: CloudEvents requires lexicographic order.
SEQUENCE_DIGITS = 19
# Event type names by prefix of the event class: those of the Agent Tool standard, then those of the log itself.
_FAMILIES = {
    "tool": "tool",
    "surface": "tool.surface",
    "deferred": "tool.deferred",
    "invocation": "tool.invocation",
    "hook_pre": "tool.hook.pre",
    "hook_post": "tool.hook.post",
    "permission": "tool.permission",
    "result": "tool.result",
    "shard": "log.shard",
    "payload": "log.payload",
    "hold": "log.hold",
    # Administrative acts.
    "policy": "policy",
    "token": "token",
    "namespace": "namespace",
    "key": "key",
    "upstream": "upstream",
    "circuit": "circuit",
    "ticket": "ticket",
}


class CloudEvent(Struct, frozen=True):
    """An event for a sink."""

    sequence: int
    leaf_hash: bytes
    """Identifies the record even after its payload was erased."""
    key: str
    """Partition key: events of one call share it, so that a partitioned sink keeps their order."""
    body: bytes
    """The event in structured JSON."""
    part: int = 1
    """1 for the event of the record itself; its moments follow."""


def source_of(trust_domain: str, log_id: str) -> str:
    """Return the globally unique source attribute of a log."""
    return f"//{trust_domain}/logs/{log_id}"


@lru_cache(maxsize=256)
def type_of(event_class: str) -> str:
    """Return the event type of an event class in canonical form."""
    for family, name in _FAMILIES.items():
        if event_class.startswith(family + "_"):
            return f"{TYPE_PREFIX}{name}.{event_class[len(family) + 1 :]}"
    return TYPE_PREFIX + event_class


def sequence_text(sequence: int) -> str:
    """Return a sequence as text with the same order."""
    return str(sequence).zfill(SEQUENCE_DIGITS)


def cloud_events(logged: LoggedRecord, trust_domain: str) -> list[CloudEvent]:
    """Return the event of a record, then those of the moments that it attests."""
    if not logged.canonical:
        about, key = _erased(logged)
        return [_event(logged, trust_domain, about, key)]
    form = _read(logged.canonical)
    about, key = _recorded(form)
    event = _event(logged, trust_domain, about, key)
    moments = moments_of(form.event_class, form.state_path)
    if not moments or not form.invocation_id:
        return [event]
    return [event, *_moments(logged, trust_domain, form, moments, key)]


def _moments(
    logged: LoggedRecord, trust_domain: str, form: _Form, moments: Sequence[str], key: str
) -> Iterator[CloudEvent]:
    """Yield an event for each moment. Its time is not recorded; its place among the others is."""
    shared = {
        "specversion": "1.0",
        "source": source_of(trust_domain, logged.log_id),
        "subject": form.tool_version or form.caller.subject or form.writer,
        "sequence": sequence_text(logged.sequence),
        "shard": logged.shard,
        "leafhash": logged.leaf_hash.hex(),
        "partitionkey": key,
        "logtime": _moment(logged),
        "datacontenttype": "application/json",
        "data": {"invocation_id": form.invocation_id, "record_id": form.record_id, "trace_id": form.trace_id},
    }
    # All but id, type and position is the same, so it is encoded once.
    rest = dump(shared)[1:]
    for position, name in enumerate(moments, start=1):
        head = f'{{"id":"{form.record_id}-{position}","type":"{TYPE_PREFIX}{name}","moment":{position},'.encode()
        yield CloudEvent(logged.sequence, logged.leaf_hash, key, head + rest, position + 1)


def _event(logged: LoggedRecord, trust_domain: str, about: dict[str, Any], key: str) -> CloudEvent:
    attributes = {
        "specversion": "1.0",
        "source": source_of(trust_domain, logged.log_id),
        **about,
        "sequence": sequence_text(logged.sequence),
        "shard": logged.shard,
        "leafhash": logged.leaf_hash.hex(),
        "partitionkey": key,
        "logtime": _moment(logged),
    }
    return CloudEvent(logged.sequence, logged.leaf_hash, key, _body(attributes, logged))


class _Subject(msgspec.Struct, gc=False, frozen=True):
    subject: str = ""


class _Resource(msgspec.Struct, gc=False, frozen=True):
    resource: str = ""


class _Form(msgspec.Struct, gc=False, frozen=True):
    """The fields of a record that an event repeats as attributes. Skipping the others saves most of the decoding."""

    record_id: str
    event_class: str
    event_time: str
    writer: str
    tool_version: str = ""
    invocation_id: str = ""
    trace_id: str = ""
    caller: _Subject = _Subject()
    act: _Resource = _Resource()
    state_path: str = ""


_read = msgspec.json.Decoder(_Form).decode


def _recorded(form: _Form) -> tuple[dict[str, Any], str]:
    about = {
        "id": form.record_id,
        "type": type_of(form.event_class),
        "time": form.event_time,
        # Tool, resource, caller or writer: the attribute must not be empty.
        "subject": form.tool_version or form.act.resource or form.caller.subject or form.writer,
    }
    return about, form.invocation_id or form.trace_id or form.record_id


def _erased(logged: LoggedRecord) -> tuple[dict[str, Any], str]:
    """Return the attributes of an erased record: the subject is the record of the erasure."""
    name = f"erased-{logged.sequence}"
    reason = f"logs/{logged.log_id}/records/{logged.erased_by or 0}"
    return {"id": name, "type": ERASED_TYPE, "time": _moment(logged), "subject": reason}, name


class _Erased(msgspec.Struct, gc=False, frozen=True):
    sequence: int = -1


class _ErasureForm(msgspec.Struct, gc=False, frozen=True):
    event_class: str
    erasure: _Erased = _Erased()


_read_erasure = msgspec.json.Decoder(_ErasureForm).decode
_ERASURE_CLASS = b'"event_class":"payload_erased"'


def erased_sequence(logged: LoggedRecord) -> int | None:
    """Return the sequence of the payload that a record reports as erased; None for any other record."""
    if _ERASURE_CLASS not in logged.canonical:
        return None
    # Only the log writes records of this class; in others, the text is part of a summary.
    form = _read_erasure(logged.canonical)
    return form.erasure.sequence if form.event_class == "payload_erased" else None


def _name(logged: LoggedRecord) -> str:
    return f"logs/{logged.log_id}/records/{logged.sequence}"


def _moment(logged: LoggedRecord) -> str:
    return _moment_text(logged.log_time)


@lru_cache(maxsize=64)
def _moment_text(moment: datetime) -> str:
    # Cached: the records of a commit share their log time.
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _body(attributes: dict[str, Any], logged: LoggedRecord) -> bytes:
    if not logged.canonical:
        return dump(attributes)
    if len(logged.canonical) > MAX_DATA_BYTES:
        return dump({**attributes, "dataref": _name(logged)})
    # Inserted as bytes: encoding the object again might give other bytes.
    head = dump({**attributes, "datacontenttype": "application/json"})
    return head[:-1] + b',"data":' + logged.canonical + b"}"
