"""Validates a message fully with the rule engine. Imported only when needed."""

from __future__ import annotations

from typing import Any

import protovalidate
from google.protobuf.message import Message

from libs.common.errors import Violation

_validator = protovalidate.Validator()


def violations_of(message: Message) -> list[Violation]:
    """Return every violation of a message."""
    return [_violation(violation) for violation in _validator.collect_violations(message)]


def _violation(violation: protovalidate.Violation) -> Violation:
    proto = violation.proto
    elements = proto.field.elements if proto.field else []
    path = "".join(_element(element) for element in elements).lstrip(".")
    return Violation(path=path, rule=proto.rule_id or "", message=proto.message or "is not valid")


def _element(element: Any) -> str:
    subscript = element.subscript
    if subscript is None:
        return f".{element.field_name}"
    return f".{element.field_name}[{subscript.value}]"
