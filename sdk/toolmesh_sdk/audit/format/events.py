"""Converts records to lines of an export: CloudEvents 1.0 events in structured JSON.

Every attribute follows from the canonical record, its location or the name of the log, so that a verifier can recompute
it. Therefore the time of the log's specific clock is not included.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from toolmesh_sdk.audit.format.canonical import UnreadableJsonError, canonical, parse, quick_canonical
from toolmesh_sdk.audit.format.merkle import leaf_hash

TYPE_PREFIX = "dev.toolmesh."
_DATA = b',"data":'
ERASED_TYPE = TYPE_PREFIX + "record.erased"
SEQUENCE_DIGITS = 19
# Prefixes of event classes that become levels of the event type.
_TOOL_LEVELS = ("surface", "deferred", "invocation", "hook_pre", "hook_post", "permission", "result")
_LOG_LEVELS = ("shard", "payload", "hold")
# Prefixes of administrative acts that are the first level.
_ACT_LEVELS = ("policy", "token", "namespace", "key", "ticket", "upstream", "circuit")


@dataclass(frozen=True, slots=True)
class RecordLocation:
    """The location of a record: log, shard and sequence."""

    log: str
    """`<trust domain>/audit/<log id>`, the prefix of every origin."""
    shard: int
    sequence: int

    @property
    def source(self) -> str:
        """The CloudEvents source of the log."""
        domain, _, log_id = self.log.partition("/audit/")
        return f"//{domain}/logs/{log_id}"


@dataclass(frozen=True, slots=True)
class Line:
    """A parsed line: its attributes, its data, and the leaf hash of the data."""

    attributes: dict[str, Any]
    form: dict[str, Any] | None
    """The canonical form of the record; None if its payload is erased."""
    leaf: bytes
    claimed: bytes
    """The leaf hash that the line claims."""
    exact: bool = False
    """True if the line is byte for byte what the writer produces for this record and location."""


@lru_cache(maxsize=256)
def event_type(event_class: str) -> str:
    """Return the CloudEvents type of an event class."""
    for family, levels in (("tool", _TOOL_LEVELS), ("log", _LOG_LEVELS)):
        for level in levels:
            if event_class.startswith(level + "_"):
                return f"{TYPE_PREFIX}{family}.{level.replace('_', '.')}.{event_class[len(level) + 1 :]}"
    for level in _ACT_LEVELS:
        if event_class.startswith(level + "_"):
            return f"{TYPE_PREFIX}{level}.{event_class[len(level) + 1 :]}"
    return f"{TYPE_PREFIX}tool.{event_class.removeprefix('tool_')}"


def attributes_of(location: RecordLocation, leaf: bytes, form: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the event attributes of a record; for None, those of an erased record."""
    specific = _erased_attributes(location) if form is None else _record_attributes(form)
    return {
        "specversion": "1.0",
        "source": location.source,
        **specific,
        "datacontenttype": "application/json",
        "sequence": str(location.sequence).zfill(SEQUENCE_DIGITS),
        "shard": location.shard,
        "leafhash": leaf.hex(),
    }


def write_line(location: RecordLocation, leaf: bytes, payload: bytes) -> tuple[bytes, dict[str, Any] | None]:
    """Return the line of a record, without a line end, and its form. An erased record has an empty payload."""
    form = parse(payload) if payload else None
    if form is not None and not isinstance(form, dict):
        raise UnreadableJsonError("a record is an object")
    head = quick_canonical(attributes_of(location, leaf, form))
    # The payload is inserted unchanged: the leaf hash covers these bytes.
    return (head[:-1] + _DATA + payload + b"}" if payload else head), form


def read_line(text: bytes, location: RecordLocation) -> Line:
    """Parse a line and compute its leaf hash. Raises UnreadableJsonError if it is not an event of an export."""
    return _read_exact(text, location) or _read_modified(text)


def _read_exact(text: bytes, location: RecordLocation) -> Line | None:
    """Parse an unmodified line, which is several times faster; None for any other line.

    This is safe: the hash of these bytes is compared with the signed tree later.
    """
    head, _, rest = text.partition(_DATA)
    payload = rest[:-1]
    try:
        form = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    if not isinstance(form, dict) or not text.endswith(b"}"):
        return None
    leaf = leaf_hash(payload)
    attributes = attributes_of(location, leaf, form)
    return Line(attributes, form, leaf, leaf, exact=True) if quick_canonical(attributes)[:-1] == head else None


def _read_modified(text: bytes) -> Line:
    event = parse(text)
    if not isinstance(event, dict) or not isinstance(event.get("leafhash"), str):
        raise UnreadableJsonError("not an event of an export")
    try:
        claimed = bytes.fromhex(event["leafhash"])
    except ValueError:
        raise UnreadableJsonError("the leaf hash is not hexadecimal") from None
    form = event.pop("data", None)
    if form is None:
        return Line(event, None, claimed, claimed)
    if not isinstance(form, dict):
        raise UnreadableJsonError("the data of an event is an object")
    return Line(event, form, _leaf(form, claimed), claimed)


def _leaf(form: dict[str, Any], claimed: bytes) -> bytes:
    # The fast encoding is almost always canonical; if the hash differs, the exact encoding is used.
    quick = leaf_hash(quick_canonical(form))
    return quick if quick == claimed else leaf_hash(canonical(form))


def _record_attributes(form: Mapping[str, Any]) -> dict[str, Any]:
    caller = form.get("caller")
    subject = caller.get("subject") if isinstance(caller, dict) else None
    act = form.get("act")
    resource = act.get("resource") if isinstance(act, dict) else None
    return {
        "id": str(form.get("record_id", "")),
        "type": event_type(str(form.get("event_class", ""))),
        "time": str(form.get("event_time", "")),
        "subject": str(form.get("tool_version") or resource or subject or form.get("writer", "")),
    }


def _erased_attributes(location: RecordLocation) -> dict[str, Any]:
    return {"id": f"erased-{location.sequence}", "type": ERASED_TYPE}
