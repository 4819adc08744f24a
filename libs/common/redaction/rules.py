"""Additional redaction rules of a tenant: field names, patterns, network addresses. Validated when they are read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from libs.common.redaction.fields import words
from libs.common.redaction.linear_regex import compile_linear

MAX_FIELDS, MAX_PATTERNS = 64, 32
_KIND = re.compile(r"[a-z][a-z0-9_]{0,31}")
_KNOWN = frozenset({"fields", "patterns", "ip_addresses"})


class RuleError(ValueError):
    """The rules are invalid; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern that is removed from text, and its kind."""

    kind: str
    expression: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Rules:
    """Additions to the built-in rules, which cannot be disabled."""

    fields: tuple[str, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    ip_addresses: bool = False


def read_rules(document: Any) -> Rules:
    """Return the rules that a parsed JSON document describes. Raises RuleError.

    `{"fields": ["employee_no"], "patterns": [{"kind": "badge", "pattern": "BDG-[0-9]{6}", "example": "BDG-123456"}],
    "ip_addresses": true}`; every part may be left out. A pattern must match its example as a whole.
    """
    if not isinstance(document, Mapping) or not document.keys() <= _KNOWN:
        raise RuleError(f"rules are an object with {', '.join(sorted(_KNOWN))}")
    fields, patterns = document.get("fields", []), document.get("patterns", [])
    if not isinstance(fields, list) or len(fields) > MAX_FIELDS or not all(_is_name(name) for name in fields):
        raise RuleError(f"fields are at most {MAX_FIELDS} names of 1 to 64 characters")
    if not isinstance(patterns, list) or len(patterns) > MAX_PATTERNS:
        raise RuleError(f"patterns are a list of at most {MAX_PATTERNS}")
    addresses = document.get("ip_addresses", False)
    if not isinstance(addresses, bool):
        raise RuleError("ip_addresses is true or false")
    return Rules(tuple(fields), tuple(_pattern(entry) for entry in patterns), addresses)


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and 0 < len(name) <= 64 and bool(words(name))


def _pattern(entry: Any) -> Pattern:
    if not isinstance(entry, Mapping) or not {"kind", "pattern", "example"} <= entry.keys():
        raise RuleError("a pattern has kind, pattern and example")
    kind, pattern, example = entry["kind"], entry["pattern"], entry["example"]
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        raise RuleError("the kind of a pattern is a lower-case word of at most 32 characters")
    if not isinstance(pattern, str) or not isinstance(example, str):
        raise RuleError(f"{kind}: pattern and example are strings")
    try:
        expression = compile_linear(pattern, ignore_case=bool(entry.get("ignore_case", False)))
    except ValueError as error:
        raise RuleError(f"{kind}: {error}") from None
    if not expression.fullmatch(example):
        raise RuleError(f"{kind}: the pattern does not match its own example")
    return Pattern(kind, expression)
