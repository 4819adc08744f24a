"""Recognizes valid messages at a fraction of the cost of the full validation.

Nearly every message is valid, and most rules are bounds. For each message type one expression is generated from its
rules and compiled, as dataclasses do it. Where it is false, the full validation decides. A rule that is not supported
here holds only for an absent field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from buf.validate import validate_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

Rules = Mapping[str, Any]

_WHOLE_NUMBERS = frozenset({"int32", "int64", "uint32", "uint64"})
_OF_PLAIN_LISTS = frozenset({"min_items", "max_items", "items", "unique"})
# In nanoseconds: a second, and the longest duration, about 10,000 years.
_SECOND = 10**9
_LONGEST = 315_576_000_000 * _SECOND
_ANCHORED = re.compile(r"\^(?P<whole>.*)\$", re.DOTALL)
_UNSURE = "False"


@cache
def passes_fast_validation(kind: Descriptor) -> Callable[[Any], bool]:
    """Return a predicate that is true only for valid messages of this type."""
    known: dict[str, Any] = {"passes_fast_validation": passes_fast_validation}
    conditions = [*_of_whole(kind), *(condition for field in kind.fields for condition in _of_field(field, known))]
    expression = " and ".join(f"({condition})" for condition in conditions) or "True"
    # Safe: it consists of names and numbers of the project's own contract.
    holds: Callable[[Any], bool] = eval(f"lambda m: {expression}", known)  # noqa: S307
    return holds


def _of_whole(kind: Descriptor) -> Iterator[str]:
    if kind.GetOptions().HasExtension(validate_pb2.message):
        yield _UNSURE
    if any(oneof.GetOptions().HasExtension(validate_pb2.oneof) for oneof in kind.oneofs):
        yield _UNSURE


def _of_field(field: FieldDescriptor, known: dict[str, Any]) -> Iterator[str]:
    """Yield the conditions of one field."""
    name, rules = f"m.{field.name}", _set_in(field.GetOptions().Extensions[validate_pb2.field])
    if field.is_repeated:
        yield from _of_repeated(field, rules, known)
        return
    holds = _of_value(field, rules, known)
    if field.has_presence:
        if "required" in rules:
            yield f"m.HasField({field.name!r})"
        if holds:
            yield f"not m.HasField({field.name!r}) or {holds.format(v=name)}"
    elif holds:
        yield holds.format(v=name)


def _of_repeated(field: FieldDescriptor, rules: Rules, known: dict[str, Any]) -> Iterator[str]:
    name = f"m.{field.name}"
    bounds = _set_in(rules["repeated"]) if "repeated" in rules else {}
    is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
    unknown = bounds.keys() - ({"min_items", "max_items", "items"} if field.message_type else _OF_PLAIN_LISTS)
    if is_map or rules.keys() - {"repeated"} or unknown:
        # The only rule that an empty value can break is that it must not be empty.
        must_be_there = (
            "required" in rules or "min_items" in bounds or "min_pairs" in _set_in(rules.get("map", _NO_MAP))
        )
        yield _UNSURE if must_be_there else f"not {name}"
        return
    item = _of_value(field, _set_in(bounds["items"]) if "items" in bounds else {}, known)
    each = f" and all([{item.format(v='v')} for v in {name}])" if item else ""
    each += f" and len(set({name})) == len({name})" if bounds.get("unique") else ""
    if "min_items" in bounds:
        yield f"{bounds['min_items']} <= len({name}) <= {bounds.get('max_items', 2**31)}{each}"
    elif bounds or item:
        yield f"not {name} or (len({name}) <= {bounds.get('max_items', 2**31)}{each})"


def _of_value(field: FieldDescriptor, rules: Rules, known: dict[str, Any]) -> str:
    """Return the condition of one value, with {v} in its place; empty if there is none."""
    rules = {name: rule for name, rule in rules.items() if name != "required"}
    if field.message_type is not None:
        if rules.keys() == {"duration"}:
            return _of_duration(_set_in(rules["duration"]))
        if rules:
            return _UNSURE
        # Looked up at the call: a message may contain its own type.
        return f"passes_fast_validation({_bind(field.message_type, known)})({{v}})"
    if not rules:
        return ""
    if len(rules) > 1:
        return _UNSURE
    [(kind, rule)] = rules.items()
    # Rules that are not messages, such as `ignore`, are not supported here.
    bounds = _set_in(rule) if isinstance(rule, Message) else {"unknown": rule}
    if kind in {"string", "bytes"} and bounds.keys() <= {"min_len", "max_len", "pattern"}:
        return _of_text(bounds, known)
    if kind == "string" and bounds.keys() == {"in"}:
        return f"{{v}} in {_bind(frozenset(bounds['in']), known)}"
    if kind in _WHOLE_NUMBERS and bounds and bounds.keys() <= {"gt", "gte", "lt", "lte"}:
        # An upper bound below the lower one means the values outside of both; this condition is then never true.
        least = bounds.get("gte", bounds.get("gt", -(2**63) - 1) + 1)
        most = bounds.get("lte", bounds.get("lt", 2**64) - 1)
        return f"{least} <= {{v}} <= {most}"
    if field.enum_type is not None and bounds.get("defined_only") and bounds.keys() <= {"defined_only", "not_in"}:
        defined = frozenset(field.enum_type.values_by_number).difference(bounds.get("not_in", ()))
        return f"{{v}} in {_bind(defined, known)}"
    return _UNSURE


def _of_duration(bounds: Rules) -> str:
    """Return the condition of a duration in its normal form: whole seconds and non-negative nanoseconds."""
    if bounds.keys() - {"gt", "gte", "lt", "lte"}:
        return _UNSURE
    at = {name: bound.seconds * _SECOND + bound.nanos for name, bound in bounds.items()}
    least = at.get("gte", at.get("gt", -_LONGEST - 1) + 1)
    most = at.get("lte", at.get("lt", _LONGEST + 1) - 1)
    return f"0 <= {{v}}.nanos < {_SECOND} and {least} <= {{v}}.seconds * {_SECOND} + {{v}}.nanos <= {most}"


def _of_text(bounds: Rules, known: dict[str, Any]) -> str:
    conditions = []
    if "min_len" in bounds:
        conditions.append(f"{bounds['min_len']} <= len({{v}})")
    if "max_len" in bounds:
        conditions.append(f"len({{v}}) <= {bounds['max_len']}")
    if "pattern" in bounds:
        anchored = _ANCHORED.fullmatch(bounds["pattern"])
        if anchored is None or "|" in re.sub(r"\([^()]*\)", "", anchored["whole"]):
            return _UNSURE
        # As in the contract: ASCII classes, and no optional line end.
        matches = _bind(re.compile(anchored["whole"], re.ASCII).fullmatch, known)
        conditions.append(f"{matches}({{v}}) is not None")
    return " and ".join(conditions)


def _bind(value: Any, known: dict[str, Any]) -> str:
    """Bind a value to a name that the expression can use."""
    name = f"known_{len(known)}"
    known[name] = value
    return name


def _set_in(rules: Message) -> Rules:
    """Return the fields that are set, by name."""
    return {field.name: value for field, value in rules.ListFields()}


_NO_MAP = validate_pb2.MapRules()
