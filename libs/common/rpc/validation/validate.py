"""Last stage: validates every request message against the rules in its proto, so that no handler has to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message

from libs.common.errors import MeshError, Reason
from libs.common.rpc.limits import MAX_MESSAGE_BYTES
from libs.common.rpc.validation.fast_validate import passes_fast_validation

# Marks bytes that are not a message of the method.
UNDECODABLE = object()
# Marks a message that is too large, which is not decoded.
OVERSIZED = object()


# The fast validator of each message type.
_FAST_VALIDATORS: dict[type, Callable[[Any], bool]] = {}


def validate(message: Any) -> None:
    """Raise INVALID_REQUEST with every violation of a message, or return."""
    is_valid = _FAST_VALIDATORS.get(type(message))
    if is_valid is None:
        if not isinstance(message, Message):
            _refuse_marked(message)
            return
        is_valid = _FAST_VALIDATORS[type(message)] = passes_fast_validation(message.DESCRIPTOR)
    if is_valid(message):
        return
    # Loaded late: the rule engine takes 14 MB, and most processes never need it.
    from libs.common.rpc.validation.violations import violations_of

    if violations := violations_of(message):
        raise MeshError(Reason.INVALID_REQUEST, violations=violations)


def _refuse_marked(message: object) -> None:
    if message is OVERSIZED:
        raise MeshError(Reason.PAYLOAD_TOO_LARGE, metadata={"limit_bytes": str(MAX_MESSAGE_BYTES)})
    if message is UNDECODABLE:
        raise MeshError(Reason.INVALID_REQUEST, message="the bytes are not a message of this method")
