"""Last: every request message is checked against the rules in its own contract, once, so that no handler has to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message

from libs.common.errors import MeshError, Reason
from libs.common.rpc.validation.fast_validate import passes_fast_validation

# Stands for bytes that are no message of the method they were sent to.
UNDECODABLE = object()


# What says of messages of a type that they certainly keep their rules; asked with every call.
_SURELY: dict[type, Callable[[Any], bool]] = {}


def validate(message: Any) -> None:
    """Raise INVALID_REQUEST with everything that is wrong with a message, or return."""
    surely = _SURELY.get(type(message))
    if surely is None:
        if not isinstance(message, Message):
            _refuse_undecodable(message)
            return
        surely = _SURELY[type(message)] = passes_fast_validation(message.DESCRIPTOR)
    if surely(message):
        return
    # The rule engine is 14 MB in every process, and most never meet a message that they need it for.
    from libs.common.rpc.validation.violations import violations_of

    if found := violations_of(message):
        raise MeshError(Reason.INVALID_REQUEST, violations=found)


def _refuse_undecodable(message: object) -> None:
    if message is UNDECODABLE:
        raise MeshError(Reason.INVALID_REQUEST, message="the bytes are not a message of this method")
