"""Strict JSON parsing and canonical JSON (RFC 8785), independent of the audit service.

RFC 8785 has no form for integers past 2^53; like the log, this module writes all digits of 64-bit integers. A larger
integer is accepted only if it is the form of a double: then the log wrote it.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

import rfc8785


class UnreadableJsonError(ValueError):
    """The text is not JSON, or is ambiguous."""


def parse(text: bytes | str) -> Any:
    """Parse UTF-8 JSON. Raises UnreadableJsonError for malformed text, duplicate keys, NaN, Infinity and integers
    past 64
    bits that are not the form of a double."""
    try:
        return _DECODER.decode(text if isinstance(text, str) else text.decode())
    except (ValueError, OverflowError, RecursionError) as error:
        raise UnreadableJsonError(str(error)) from None


def canonical(value: Any) -> bytes:
    """Return the canonical bytes of a parsed value. Raises UnreadableJsonError if there are none."""
    try:
        return _write(value)
    except (ValueError, OverflowError, RecursionError) as error:
        raise UnreadableJsonError(str(error)) from None


def quick_canonical(value: Any) -> bytes:
    """Return the canonical bytes of a value with keys in the basic plane and without fractions; for other values the
    bytes may differ. Use it for a fast first try that a hash confirms."""
    try:
        return _encode(value).encode()
    except (ValueError, OverflowError, RecursionError) as error:
        raise UnreadableJsonError(str(error)) from None


_encode = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False).encode


_DECODER = json.JSONDecoder(
    object_pairs_hook=lambda pairs: _refuse_duplicates(pairs),
    parse_constant=lambda name: _refuse_constant(name),
    parse_int=lambda digits: int(digits) if len(digits) < _WIDE else _wide_integer(int(digits)),
)
# Integers with fewer digits fit into 64 bits.
_WIDE = 19


def _write(value: Any) -> bytes:
    if isinstance(value, dict):
        ordered = sorted(value.items(), key=lambda item: item[0].encode("utf-16-be"))
        return b"{" + b",".join(rfc8785.dumps(key) + b":" + _write(item) for key, item in ordered) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join(map(_write, value)) + b"]"
    if isinstance(value, int) and not isinstance(value, bool):
        return b"%d" % _wide_integer(value)
    return bytes(rfc8785.dumps(value))


def _wide_integer(value: int) -> int:
    if not -(2**63) <= value < 2**64 and rfc8785.dumps(float(value)) != b"%d" % value:
        raise ValueError("an integer past 64 bits is not the form of a double")
    return value


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("an object has the same key twice")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
