"""The full check of a message, by the rule engine: what is wrong with it, in the contract's own terms. Loaded when it is first needed."""

from __future__ import annotations

from typing import Any

import protovalidate
from google.protobuf.message import Message

from libs.common.errors import Violation

_validator = protovalidate.Validator()


def violations_of(message: Message) -> list[Violation]:
    """Return everything that is wrong with a message."""
    return [_violation(found) for found in _validator.collect_violations(message)]


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
