"""Converts arguments into the request message of a method, and answers into JSON."""

from __future__ import annotations

from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from libs.common.errors import Violation
from services.executor.domain import errors

_MAX_DEPTH = 64


def encode_request(message: Descriptor, arguments: dict[str, Any]) -> bytes:
    """Return the serialized request. Raises ARGUMENTS_INVALID."""
    try:
        request: Message = json_format.ParseDict(
            arguments, GetMessageClass(message)(), descriptor_pool=message.file.pool, max_recursion_depth=_MAX_DEPTH
        )
        return request.SerializeToString(deterministic=True)
    except (json_format.ParseError, ValueError, TypeError, RecursionError):
        # The text of the cause may repeat a value.
        violation = Violation("", "grpc.message", f"have no form as the message {message.full_name}")
        raise errors.arguments_invalid([violation]) from None


def decode_answer(message: Descriptor, content: bytes) -> dict[str, Any]:
    """Return an answer as JSON; fields without a value are absent. Raises RESULT_INVALID."""
    try:
        answer: Message = GetMessageClass(message).FromString(content)
        value: dict[str, Any] = json_format.MessageToDict(
            answer, preserving_proto_field_name=True, descriptor_pool=message.file.pool
        )
    except (DecodeError, json_format.SerializeToJsonError, ValueError, TypeError, RecursionError):
        violation = Violation("", "grpc.message", f"the answer is no message {message.full_name}")
        raise errors.result_invalid([violation]) from None
    return value
