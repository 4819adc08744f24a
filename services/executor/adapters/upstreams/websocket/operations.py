"""What one operation of a WebSocket service sends and understands. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from toolmesh.registry.v1 import upstream_pb2

from libs.common.json.canonical import digest
from libs.common.json.jsonio import dump, parse_object


class MessageRole(Enum):
    """What a message of the service is to a call."""

    ANSWER = "answer"
    ERROR = "error"
    END = "end"
    OTHER = "other"
    """About something else, such as a greeting."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation, and the digest of its definition."""

    name: str
    definition: bytes
    digest: str
    stream: bool
    constants: Mapping[str, Any] = field(default_factory=dict)
    arguments_member: str = ""
    id_member: str = ""
    error_member: str = ""
    end: Mapping[str, Any] = field(default_factory=dict)

    def message(self, arguments: Mapping[str, Any], call_id: str) -> bytes:
        """Return the message of a call. What the deployment fixes, no argument replaces."""
        content = {self.arguments_member: arguments} if self.arguments_member else dict(arguments)
        return dump(content | dict(self.constants) | ({self.id_member: call_id} if self.id_member else {}))

    def role_of(self, message: Any, call_id: str) -> MessageRole:
        """Return what a message is to the call of this id."""
        members = message if isinstance(message, dict) else {}
        if self.id_member and members.get(self.id_member) != call_id:
            return MessageRole.OTHER
        if self.error_member and members.get(self.error_member) is not None:
            return MessageRole.ERROR
        if self.end and all(key in members and members[key] == value for key, value in self.end.items()):
            return MessageRole.END
        return MessageRole.ANSWER


def read_operation(message: upstream_pb2.WebSocketOperation) -> Operation:
    """Return an operation. Raises INVALID_REQUEST if a part is not JSON; the registry took none of these."""
    constants, end = (parse_object(text) if text else {} for text in (message.constants, message.end))
    definition: dict[str, Any] = {
        "description": message.description,
        "input": parse_object(message.input_schema),
        "read_only": message.read_only,
        "stream": message.stream,
        "constants": constants,
        "arguments_member": message.arguments_member,
        "id_member": message.id_member,
        "error_member": message.error_member,
        "end": end,
    }
    if message.output_schema:
        definition["output"] = parse_object(message.output_schema)
    return Operation(
        message.name,
        dump(definition),
        digest(definition),
        message.stream,
        constants,
        message.arguments_member,
        message.id_member,
        message.error_member,
        end,
    )
