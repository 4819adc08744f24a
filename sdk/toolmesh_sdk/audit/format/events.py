"""A record as one line of an export: a CloudEvents 1.0 event in structured JSON.

Nothing in a line is unverifiable: each attribute follows from the record's canonical form, from its location, or from the log's
name, so the verifier writes the attributes again and compares. That is why the log's own clock does not appear here.
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
# Event classes of the contract are words with underscores; of these only the first parts are levels of the type's name.
_TOOL_LEVELS = ("surface", "deferred", "invocation", "hook_pre", "hook_post", "permission", "result")
_LOG_LEVELS = ("shard", "payload", "hold")


@dataclass(frozen=True, slots=True)
class RecordLocation:
    """Where a record stands: which log, which shard, which sequence."""

    log: str
    """`<trust domain>/audit/<log id>`, the beginning of every origin."""
    shard: int
    sequence: int

    @property
    def source(self) -> str:
        """The log as the source of events."""
        domain, _, log_id = self.log.partition("/audit/")
        return f"//{domain}/logs/{log_id}"


@dataclass(frozen=True, slots=True)
class Line:
    """A line that was read: its attributes, its data, and the leaf hash that follows from the data."""

    attributes: dict[str, Any]
    form: dict[str, Any] | None
    """The record's canonical form as values; None where the payload was erased."""
    leaf: bytes
    claimed: bytes
    """The leaf hash that the line names."""
    exact: bool = False
    """True if the line is, byte for byte, what the writer makes of this record at this location."""


@lru_cache(maxsize=256)
def event_type(event_class: str) -> str:
    """Return the CloudEvents type of an event class."""
    for family, levels in (("tool", _TOOL_LEVELS), ("log", _LOG_LEVELS)):
        for level in levels:
            if event_class.startswith(level + "_"):
                return f"{TYPE_PREFIX}{family}.{level.replace('_', '.')}.{event_class[len(level) + 1 :]}"
    return f"{TYPE_PREFIX}tool.{event_class.removeprefix('tool_')}"


def attributes_of(location: RecordLocation, leaf: bytes, form: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the attributes of a record's event; without a form, those of an erased record."""
    own = _erased(location) if form is None else _recorded(form)
    return {
        "specversion": "1.0",
        "source": location.source,
        **own,
        "datacontenttype": "application/json",
        "sequence": str(location.sequence).zfill(SEQUENCE_DIGITS),
        "shard": location.shard,
        "leafhash": leaf.hex(),
    }


def write_line(location: RecordLocation, leaf: bytes, payload: bytes) -> tuple[bytes, dict[str, Any] | None]:
    """Return the line of a record, without its end, and the record's form. An empty payload is one that was erased."""
    form = parse(payload) if payload else None
    if form is not None and not isinstance(form, dict):
        raise UnreadableJsonError("the form of a record is an object")
    head = quick_canonical(attributes_of(location, leaf, form))
    # Put in as it is: these are the bytes that the leaf hash is of, with all digits of every integer.
    return (head[:-1] + _DATA + payload + b"}" if payload else head), form


def read_line(text: bytes, location: RecordLocation) -> Line:
    """Read the line at a location and compute its leaf hash. Raises UnreadableJsonError for what is no event of an export."""
    return _read_exact(text, location) or _read_any(text)


def _read_exact(text: bytes, location: RecordLocation) -> Line | None:
    """Read a line that is as the writer left it, which is several times faster; None for any other.

    Nothing is lost by not looking closer: these bytes have this hash, and whether the log has signed that is found out later.
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


def _read_any(text: bytes) -> Line:
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
    # The quick form is nearly always the canonical one; where it is not, the hash says so and the exact one is written.
    quick = leaf_hash(quick_canonical(form))
    return quick if quick == claimed else leaf_hash(canonical(form))


def _recorded(form: Mapping[str, Any]) -> dict[str, Any]:
    caller = form.get("caller")
    person = caller.get("subject") if isinstance(caller, dict) else None
    return {
        "id": str(form.get("record_id", "")),
        "type": event_type(str(form.get("event_class", ""))),
        "time": str(form.get("event_time", "")),
        "subject": str(form.get("tool_version") or person or form.get("writer", "")),
    }


def _erased(location: RecordLocation) -> dict[str, Any]:
    return {"id": f"erased-{location.sequence}", "type": ERASED_TYPE}
