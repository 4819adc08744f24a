"""Parses the messages of MCP: one JSON-RPC 2.0 request, notification or response for each HTTP request."""

from __future__ import annotations

from typing import Any, NamedTuple

from libs.common.errors import MeshError, Reason, Violation
from libs.common.json.jsonio import parse, refuse_many_containers
from services.gateway.domain.errors import not_a_request

MAX_BYTES = 4 * 1024 * 1024
MAX_ID_LENGTH = 255

RequestId = str | int


class Message(NamedTuple):
    """A request, or a notification when it has no id."""

    id: RequestId | None
    method: str
    params: dict[str, Any]


class ClientResponse(NamedTuple):
    """A response of the client to a request of the gateway. Without a result it is an error."""

    id: Any
    result: dict[str, Any] | None


class InvalidMessageError(Exception):
    """A body that is JSON and not one message. The id is that of the message where it has a usable one."""

    def __init__(self, error: MeshError, request_id: RequestId | None = None) -> None:
        super().__init__(error.message)
        self.error, self.request_id = error, request_id


def parse_message(payload: bytes) -> Message | ClientResponse:
    """Return the message.

    Raises INVALID_JSON, PAYLOAD_TOO_LARGE, or InvalidMessageError for a batch and for anything else that is no message.
    """
    refuse_many_containers(payload)
    value = parse(payload, max_bytes=MAX_BYTES)
    if type(value) is not dict:
        message = "MCP takes one message for each request" if isinstance(value, list) else "not a JSON-RPC 2.0 message"
        raise InvalidMessageError(MeshError(Reason.INVALID_REQUEST, message=message))
    request_id, method, params = value.get("id"), value.get("method"), value.get("params", {})
    if value.get("jsonrpc") == "2.0" and "method" not in value and ("result" in value or "error" in value):
        result = value.get("result")
        return ClientResponse(request_id, result if type(result) is dict else None)
    usable = _is_id(request_id)
    if value.get("jsonrpc") == "2.0" and type(method) is str and type(params) is dict and (usable or "id" not in value):
        return Message(request_id if usable else None, method, params)
    violations = []
    if type(method) is not str:
        violations.append(Violation("/method", "type", "must be a string"))
    if type(params) is not dict:
        violations.append(Violation("/params", "type", "must be an object"))
    if "id" in value and not usable:
        violations.append(Violation("/id", "type", "must be a string of at most 255 characters or an integer"))
    raise InvalidMessageError(not_a_request(violations), request_id if usable else None)


def _is_id(value: Any) -> bool:
    return type(value) is int or (type(value) is str and len(value) <= MAX_ID_LENGTH)
