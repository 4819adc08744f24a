"""Parses JSON-RPC 2.0 messages (sections 4 and 6) from strict JSON."""

from __future__ import annotations

from typing import Any

from libs.common.errors import Violation
from libs.common.json.jsonio import parse as parse_json
from libs.common.json.jsonio import refuse_many_containers
from services.gateway.domain.errors import batch_too_long, empty_batch, not_a_request, too_many_calls
from services.gateway.domain.model import Entry, Id, InvalidEntry, Message, Request

MAX_BYTES = 4 * 1024 * 1024
MAX_ENTRIES = 50
MAX_CALLS = 64
"""The most calls of one message: as many as one group may hold."""


def parse(payload: bytes) -> Message:
    """Parse a body. An entry that is not a request becomes InvalidEntry; the others are unaffected.

    Raises INVALID_JSON, PAYLOAD_TOO_LARGE, or INVALID_REQUEST for a batch that is empty, too long or asks for too many
    calls. Then there is one response, with a null id.
    """
    refuse_many_containers(payload)
    value = parse_json(payload, max_bytes=MAX_BYTES)
    if not isinstance(value, list):
        return Message((_entry(value),), batch=False)
    if not value:
        raise empty_batch()
    if len(value) > MAX_ENTRIES:
        raise batch_too_long(MAX_ENTRIES)
    message = Message(tuple(_entry(item) for item in value), batch=True)
    if sum(map(_calls, message.entries)) > MAX_CALLS:
        raise too_many_calls(MAX_CALLS)
    return message


def _calls(entry: Entry) -> int:
    """Return how many calls an entry asks for. The rate limit in front of the mesh counts one for the whole message."""
    if isinstance(entry, InvalidEntry) or not isinstance(entry.params, dict):
        return 1
    calls = entry.params.get("calls")
    return max(1, len(calls)) if isinstance(calls, list) else 1


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
