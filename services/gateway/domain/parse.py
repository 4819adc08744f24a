"""Bytes to entries: JSON-RPC 2.0, section 4 and 6, on top of the mesh's strict JSON."""

from __future__ import annotations

from typing import Any

from libs.common.errors import Violation
from libs.common.json.jsonio import parse as parse_json
from services.gateway.domain.errors import batch_too_long, empty_batch, not_a_request
from services.gateway.domain.model import Entry, Id, Message, Request, Unusable

MAX_BYTES = 4 * 1024 * 1024
MAX_ENTRIES = 50


def parse(payload: bytes) -> Message:
    """Read a body. An entry that is no request becomes Unusable; the others are unharmed by it.

    Raises INVALID_JSON or PAYLOAD_TOO_LARGE where the body is not the JSON that the mesh accepts, and INVALID_REQUEST for
    a batch that is empty or too long: then there is one answer, with a null id.
    """
    value = parse_json(payload, max_bytes=MAX_BYTES)
    if not isinstance(value, list):
        return Message((_entry(value),), batch=False)
    if not value:
        raise empty_batch()
    if len(value) > MAX_ENTRIES:
        raise batch_too_long(MAX_ENTRIES)
    return Message(tuple(_entry(item) for item in value), batch=True)


def _entry(value: Any) -> Entry:
    if type(value) is not dict:
        return Unusable(None, not_a_request())
    given = value.get("id")
    method, params = value.get("method"), value.get("params", _NO_PARAMS)
    # The order of these checks follows how often they fail: never, on the warm path.
    if value.get("jsonrpc") == "2.0" and type(method) is str and type(params) in _STRUCTURED and _is_id(given):
        return Request(given, method, params, notification="id" not in value)
    known: Id = given if _is_id(given) else None
    return Unusable(known, not_a_request(_violations(value)))


_NO_PARAMS: dict[str, Any] = {}
_STRUCTURED = (dict, list)


def _is_id(value: Any) -> bool:
    # A bool is an int to Python and not to JSON.
    return value is None or type(value) in (str, int, float)


def _violations(value: dict[str, Any]) -> list[Violation]:
    found = []
    if value.get("jsonrpc") != "2.0":
        found.append(Violation("/jsonrpc", "const", 'must be "2.0"'))
    if type(value.get("method")) is not str:
        found.append(Violation("/method", "type", "must be a string"))
    if type(value.get("params", _NO_PARAMS)) not in _STRUCTURED:
        found.append(Violation("/params", "type", "must be an object"))
    if not _is_id(value.get("id")):
        found.append(Violation("/id", "type", "must be a string, a number or null"))
    return found
