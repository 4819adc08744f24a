"""Records as CloudEvents 1.0 in structured JSON.

The data of an event is the record's canonical form, byte for byte, so that receivers can recompute the leaf hash.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from libs.common.json.jsonio import dump
from services.audit.domain.model import LoggedRecord

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
    "key": "key",
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


def cloud_event(logged: LoggedRecord, trust_domain: str) -> CloudEvent:
    """Return the event of a record."""
    about, key = _recorded(logged) if logged.canonical else _erased(logged)
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


_read = msgspec.json.Decoder(_Form).decode


def _recorded(logged: LoggedRecord) -> tuple[dict[str, Any], str]:
    form = _read(logged.canonical)
    about = {
        "id": form.record_id,
        "type": type_of(form.event_class),
        "time": form.event_time,
        # Tool, caller or writer: the attribute must not be empty.
        "subject": form.tool_version or form.caller.subject or form.writer,
    }
    return about, form.invocation_id or form.trace_id or form.record_id


def _erased(logged: LoggedRecord) -> tuple[dict[str, Any], str]:
    """Return the attributes of an erased record: the subject is the record of the erasure."""
    name = f"erased-{logged.sequence}"
    reason = f"logs/{logged.log_id}/records/{logged.erased_by or 0}"
    return {"id": name, "type": ERASED_TYPE, "time": _moment(logged), "subject": reason}, name


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
