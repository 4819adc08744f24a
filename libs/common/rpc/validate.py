"""Last: every request message is checked against the rules in its own contract, once, so that no handler has to."""

from __future__ import annotations

from typing import Any

import protovalidate
from google.protobuf.message import Message

from libs.common.errors import MeshError, Reason, Violation
from libs.common.rpc.surely import surely_valid

# Stands for bytes that are no message of the method they were sent to.
UNDECODABLE = object()


class Validate:
    """Checks a message; lists everything that is wrong with it."""

    def __init__(self) -> None:
        self._validator = protovalidate.Validator()

    def __call__(self, message: Any) -> None:
        """Raise INVALID_REQUEST with every violation, or return."""
        if not isinstance(message, Message):
            if message is UNDECODABLE:
                raise MeshError(Reason.INVALID_REQUEST, message="the bytes are not a message of this method")
            return
        if surely_valid(message.DESCRIPTOR)(message):
            return
        found = self._validator.collect_violations(message)
        if found:
            raise MeshError(Reason.INVALID_REQUEST, violations=[_violation(v) for v in found])


def _violation(found: protovalidate.Violation) -> Violation:
    proto = found.proto
    elements = proto.field.elements if proto.field else []
    path = "".join(_element(element) for element in elements).lstrip(".")
    return Violation(path=path, rule=proto.rule_id or "", message=proto.message or "is not valid")


def _element(element: Any) -> str:
    subscript = element.subscript
    if subscript is None:
        return f".{element.field_name}"
    return f".{element.field_name}[{subscript.value}]"
