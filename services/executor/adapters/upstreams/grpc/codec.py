"""Converts arguments into the request message of a method, and answers into JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from libs.common.errors import MeshError, Reason, Violation
from services.executor.adapters.runners.worker.frames import MAX_VALUES
from services.executor.adapters.upstreams.grpc.channel import MAX_SENT_BYTES
from services.executor.domain import errors

_MAX_DEPTH = 64
_ANY = "google.protobuf.Any"


def encode_request(message: Descriptor, arguments: dict[str, Any]) -> bytes:
    """Return the serialized request. Raises ARGUMENTS_INVALID, and PAYLOAD_TOO_LARGE for one that is not sent."""
    try:
        request: Message = json_format.ParseDict(
            arguments, GetMessageClass(message)(), descriptor_pool=message.file.pool, max_recursion_depth=_MAX_DEPTH
        )
        content = request.SerializeToString(deterministic=True)
    except (json_format.ParseError, ValueError, TypeError, RecursionError):
        # The text of the cause may repeat a value.
        violation = Violation("", "grpc.message", f"have no form as the message {message.full_name}")
        raise errors.arguments_invalid([violation]) from None
    if len(content) > MAX_SENT_BYTES:
        # A number of one digit may become eight bytes.
        raise MeshError(Reason.PAYLOAD_TOO_LARGE, metadata={"limit_bytes": str(MAX_SENT_BYTES), "effect": "none"})
    return content


def decode_answers(message: Descriptor, contents: Sequence[bytes], limit: int) -> list[dict[str, Any]]:
    """Return answers as JSON; fields without a value are absent.

    Raises RESULT_INVALID, and RESULT_TOO_LARGE if they have more bytes than the limit or too many values together.
    """
    size, values = sum(map(len, contents)), 0
    if size > limit:
        raise errors.result_too_large(size, limit)
    decoded = []
    for content in contents:
        answer = _parse_answer(message, content)
        # A packed list has a value in each byte, and its JSON takes a hundred times as much memory.
        for count in _value_counts(answer, message.file.pool):
            values += count
            if values > MAX_VALUES:
                raise errors.result_too_large(size, limit)
        decoded.append(_json_of(answer, message))
    return decoded


def _parse_answer(message: Descriptor, content: bytes) -> Message:
    try:
        return GetMessageClass(message).FromString(content)
    except (DecodeError, ValueError, RecursionError):
        raise _not_a_message(message) from None


def _json_of(answer: Message, message: Descriptor) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json_format.MessageToDict(
            answer, preserving_proto_field_name=True, descriptor_pool=message.file.pool
        )
    except (DecodeError, json_format.SerializeToJsonError, ValueError, TypeError, RecursionError):
        raise _not_a_message(message) from None
    return value


def _not_a_message(message: Descriptor) -> MeshError:
    violation = Violation("", "grpc.message", f"the answer is no message {message.full_name}")
    return errors.result_invalid([violation])


def _value_counts(answer: Message, pool: DescriptorPool) -> Iterator[int]:
    """Yield how many JSON values the parts of a message have, so that a count can stop in time."""
    waiting = [answer]
    while waiting:
        message = waiting.pop()
        if message.DESCRIPTOR.full_name == _ANY and (packed := _unpack(message, pool)) is not None:
            waiting.append(packed)
        for field, value in message.ListFields():
            is_list = field.is_repeated
            yield len(value) if is_list else 1
            if field.message_type is not None:
                waiting.extend(_messages_of(field.message_type, value) if is_list else (value,))


def _messages_of(kind: Descriptor, value: Any) -> Iterable[Message]:
    """Return the messages of a list, or the values of a map that are messages."""
    if not kind.GetOptions().map_entry:
        return value  # type: ignore[no-any-return]
    return value.values() if kind.fields_by_name["value"].message_type is not None else ()


def _unpack(message: Any, pool: DescriptorPool) -> Message | None:
    """Return the message inside an Any; None if its type is not known, which ends its conversion to JSON."""
    try:
        kind = pool.FindMessageTypeByName(message.type_url.rpartition("/")[2])
        return GetMessageClass(kind).FromString(message.value)
    except (KeyError, DecodeError, ValueError, RecursionError):
        return None
