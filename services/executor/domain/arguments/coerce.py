"""Converts a value to its declared type, if that is lossless. Pure.

Models write `"42"` where `42` is meant. Such a text is converted if its value is exact. A text that looks like the type
but would have to be rounded, truncated or guessed is lossy. Anything else is left to the schema.

| declared | read | lossy |
|---|---|---|
| integer | a whole JSON number of 64 bits: `"42"`, `"42.0"`, `"4.2e1"`, `42.0` | `"42.5"`, `"0x10"`, `"1_000"`,
`"+1"` |
| number | a JSON number that a double represents exactly: `"0.1"`, `"1e22"` | `"1e400"`, `"0.12345678901234567"`,
`"NaN"` |
| boolean | `"true"` and `"false"` | |
| object, array | the JSON text of one | one with a key twice, an integer past 64 bits, or nested too deeply |

Nothing ever becomes a string, null, or a list of one.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from enum import Enum
from typing import Any

from libs.common.errors import MeshError
from libs.common.json.jsonio import MAX_DEPTH, is_exact_double, parse

_LOWEST, _HIGHEST = -(2**63), 2**64 - 1
# Up to here every whole double is exact.
_EXACT = 2**53
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
# Notations of numbers in other languages.
_NUMBER_LIKE = re.compile(
    r"[+-]?(?:0[xXoObB][0-9a-fA-F_]+|[0-9][0-9_,]*\.?[0-9_]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?)"
    r"|[+-]?(?:inf(?:inity)?|nan)",
    re.IGNORECASE,
)
# The longest text that is read as a number; an exact double needs at most 1100 characters, and none occur in practice.
_LONGEST_NUMBER = 400
_LONGEST_EXPONENT = 4
_BRACKETS = {"object": "{", "array": "["}
_KINDS: dict[str, type] = {"object": dict, "array": list}
_BOOLEANS = {"true": True, "false": False}


class Unread(Enum):
    """Why a value was not converted."""

    UNLIKE = "unlike"
    """It does not look like the type; the schema decides."""
    LOSSY = "lossy"
    """It looks like the type, but the conversion would change its value."""


def reading(value: Any, declared: str, room: int = MAX_DEPTH) -> Any:
    """Return the value as the declared type, or why it was not converted. `room` is the nesting depth that is left."""
    if isinstance(value, str):
        return _read_text(value, declared, room)
    if type(value) is float and declared == "integer":
        return int(value) if value.is_integer() and abs(value) <= _EXACT else Unread.UNLIKE
    return Unread.UNLIKE


def _read_text(text: str, declared: str, room: int) -> Any:
    if declared == "integer":
        return _integer(text)
    if declared == "number":
        return _number(text)
    if declared == "boolean":
        return _BOOLEANS.get(text, Unread.UNLIKE)
    if declared in _BRACKETS:
        return _structure(text, declared, room)
    return Unread.UNLIKE


def _integer(text: str) -> Any:
    exact = _exact(text)
    if not isinstance(exact, Decimal):
        return exact
    # Checked first: a short text can denote a number with a billion digits.
    if exact.adjusted() > 20 or exact != exact.to_integral_value() or not _LOWEST <= exact <= _HIGHEST:
        return Unread.LOSSY
    return int(exact)


def _number(text: str) -> Any:
    exact = _exact(text)
    if not isinstance(exact, Decimal):
        return exact
    if _INTEGER.fullmatch(text) and exact.adjusted() <= 20 and _LOWEST <= exact <= _HIGHEST:
        return int(exact)
    return float(text) if is_exact_double(text) else Unread.LOSSY


def _exact(text: str) -> Decimal | Unread:
    """Return the number of a text, with all its digits."""
    if len(text) <= _LONGEST_NUMBER and _NUMBER.fullmatch(text):
        exponent = re.split("[eE]", text)[1:]
        if exponent and len(exponent[0].lstrip("+-")) > _LONGEST_EXPONENT:
            return Unread.LOSSY
        return Decimal(text)
    return Unread.LOSSY if _NUMBER_LIKE.fullmatch(text) else Unread.UNLIKE


def _structure(text: str, declared: str, room: int) -> Any:
    if not text.lstrip(" \t\r\n").startswith(_BRACKETS[declared]):
        return Unread.UNLIKE
    try:
        value = parse(text.encode(), max_depth=max(room, 1))
    except (MeshError, UnicodeEncodeError):
        return Unread.LOSSY if _is_lenient_json(text) else Unread.UNLIKE
    return value if isinstance(value, _KINDS[declared]) else Unread.UNLIKE


def _is_lenient_json(text: str) -> bool:
    """Return whether a lenient JSON parser would accept the text."""
    try:
        json.loads(text)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True
