"""How a value that is not of the declared type may still be read as it, without losing anything. Pure.

Models write `"42"` where `42` is meant. Such a text is read as what it says, if what it says is exact. What looks like the type
but could only be had by rounding, cutting or guessing is lossy, and what does not look like it at all is left to the schema.

| declared | read | lossy |
|---|---|---|
| integer | a JSON number in a text, whole and within 64 bits: `"42"`, `"-7"`, `"42.0"`, `"4.2e1"`; the number `42.0` | `"42.5"`, `"1e400"`, 23 digits, `"0x10"`, `"1_000"`, `"+1"`, `"007"` |
| number | a JSON number in a text that a double holds digit by digit: `"0.1"`, `"1e22"` | `"1e400"`, `"1e-400"`, `"0.1234567890123456789"`, `"NaN"` |
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
from libs.common.json.jsonio import MAX_DEPTH, parse

_LOWEST, _HIGHEST = -(2**63), 2**64 - 1
# Up to here every whole double is the number that was written.
_EXACT = 2**53
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
# What somebody may have meant as a number, in whichever language.
_NUMBER_LIKE = re.compile(
    r"[+-]?(?:0[xXoObB][0-9a-fA-F_]+|[0-9][0-9_,]*\.?[0-9_]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?)"
    r"|[+-]?(?:inf(?:inity)?|nan)",
    re.IGNORECASE,
)
# The longest text that is worth reading as a number; a double needs no more than 1100 characters, and nobody writes them.
_LONGEST_NUMBER = 400
_LONGEST_EXPONENT = 4
_BRACKETS = {"object": "{", "array": "["}
_KINDS: dict[str, type] = {"object": dict, "array": list}
_BOOLEANS = {"true": True, "false": False}


class Unread(Enum):
    """Why a value was not read as the declared type."""

    UNLIKE = "unlike"
    """It does not look like it: whatever it is, the schema speaks about it."""
    LOSSY = "lossy"
    """It looks like it, and reading it would change what it says."""


def reading(value: Any, declared: str, room: int = MAX_DEPTH) -> Any:
    """Return what a value says as the declared type, exactly, or why it was not read. `room` is how many levels of nesting may
    still be added where the value stands."""
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
    # Not before it is known to be small: a short text can name a number with a billion digits.
    if exact.adjusted() > 20 or exact != exact.to_integral_value() or not _LOWEST <= exact <= _HIGHEST:
        return Unread.LOSSY
    return int(exact)


def _number(text: str) -> Any:
    exact = _exact(text)
    if not isinstance(exact, Decimal):
        return exact
    if _INTEGER.fullmatch(text) and exact.adjusted() <= 20 and _LOWEST <= exact <= _HIGHEST:
        return int(exact)
    rounded = float(text)
    # The digits that would be written again; an infinite one has none.
    return rounded if abs(rounded) != float("inf") and Decimal(repr(rounded)) == exact else Unread.LOSSY


def _exact(text: str) -> Decimal | Unread:
    """The number that a text names, with all its digits."""
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
        found = parse(text.encode(), max_depth=max(room, 1))
    except (MeshError, UnicodeEncodeError):
        return Unread.LOSSY if _is_lenient_json(text) else Unread.UNLIKE
    return found if isinstance(found, _KINDS[declared]) else Unread.UNLIKE


def _is_lenient_json(text: str) -> bool:
    """Say whether a reader that forgives what the contract forbids would have taken it."""
    try:
        json.loads(text)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True
