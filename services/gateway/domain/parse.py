"""Parses JSON-RPC 2.0 messages (sections 4 and 6) from strict JSON."""

from __future__ import annotations

from typing import Any

from libs.common.errors import Violation
from libs.common.json.jsonio import parse as parse_json
from services.gateway.domain.errors import batch_too_long, empty_batch, not_a_request
from services.gateway.domain.model import Entry, Id, InvalidEntry, Message, Request

MAX_BYTES = 4 * 1024 * 1024
MAX_ENTRIES = 50


def parse(payload: bytes) -> Message:
    """Parse a body. An entry that is not a request becomes InvalidEntry; the others are unaffected.

    Raises INVALID_JSON, PAYLOAD_TOO_LARGE, or INVALID_REQUEST for a batch that is empty or too long. Then there is one
    response, with a null id.
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
        return InvalidEntry(None, not_a_request())
    request_id = value.get("id")
    method, params = value.get("method"), value.get("params", _NO_PARAMS)
    # One expression, because on the warm path none of these checks fails.
    if value.get("jsonrpc") == "2.0" and type(method) is str and type(params) in _STRUCTURED and _is_id(request_id):
        return Request(request_id, method, params, notification="id" not in value)
    usable_id: Id = request_id if _is_id(request_id) else None
    return InvalidEntry(usable_id, not_a_request(_violations(value)))


_NO_PARAMS: dict[str, Any] = {}
_STRUCTURED = (dict, list)


def _is_id(value: Any) -> bool:
    # A bool is an int to Python and not to JSON.
    return value is None or type(value) in (str, int, float)


def _violations(value: dict[str, Any]) -> list[Violation]:
    violations = []
    if value.get("jsonrpc") != "2.0":
        violations.append(Violation("/jsonrpc", "const", 'must be "2.0"'))
    if type(value.get("method")) is not str:
        violations.append(Violation("/method", "type", "must be a string"))
    if type(value.get("params", _NO_PARAMS)) not in _STRUCTURED:
        violations.append(Violation("/params", "type", "must be an object"))
    if not _is_id(value.get("id")):
        violations.append(Violation("/id", "type", "must be a string, a number or null"))
    return violations
