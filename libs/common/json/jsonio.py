"""Strict JSON: nothing is rounded, dropped or ambiguous.

orjson is lenient in three ways that matter for evidence: a duplicate key silently wins over the first, an integer
past 64 bits silently becomes a float, and a fraction becomes the nearest double. All are found here with a cheap second
check instead of a slow parser. A double between 2^64 and 10^21 has an integer as its canonical form (RFC 8785), so
exactly those integers past 64 bits are accepted: reading and writing one gives the same digits again. A number with a
fraction or an exponent is accepted if its value is one of the two usual spellings of its double: the shortest, or the
one with 17 digits.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any, TypeAlias

import orjson

from libs.common.errors import MeshError, Reason

JsonValue: TypeAlias = bool | int | float | str | list[Any] | dict[str, Any] | None

MAX_DEPTH = 64
MAX_BYTES = 3 * 1024 * 1024
MAX_CONTAINERS = 50_000
"""The most lists and objects of one request. Each costs far more time and memory than its two bytes of text."""

# Matches whole strings, with the colon of a key: in valid JSON nothing else is followed by one. Possessive quantifiers
# keep a long string from being retried at each of its characters.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"\s*+(:?)')
# The same for invalid JSON: an unterminated string takes the rest.
_ANY_STRING = re.compile(rb'(?s)"[^"\\]*+(?:\\.[^"\\]*+)*+"?+')
# 18 digits always fit into 64 bits, and 15 into a double of ordinary size; only other numbers need a check.
_MAY_BE_ROUNDED = re.compile(rb"[0-9][0-9.]{15}|[eE]-[0-9]{3}")
_NUMBER = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|(-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)')
# Scalars that are not floats.
_PLAIN = frozenset({str, int, bool, type(None)})
_LOWEST, _HIGHEST = -(2**63), 2**64 - 1
_SHORT_DIGITS = 18
# As many digits name every double.
_DOUBLE_DIGITS = 17
# RFC 8785 writes doubles from 10^21 on with an exponent.
_CANONICAL_DIGITS = 21


def parse(payload: bytes, *, max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH) -> JsonValue:
    """Parse UTF-8 JSON strictly.

    Raises INVALID_JSON for malformed text, duplicate keys, NaN, Infinity, numbers beyond a double's range, lone
    surrogates, integers outside -2^63 .. 2^64-1 that are not the canonical form of a double, and fractions that a
    double does not hold; PAYLOAD_TOO_LARGE for too many bytes or levels.
    """
    if len(payload) > max_bytes:
        raise MeshError(Reason.PAYLOAD_TOO_LARGE, metadata={"limit_bytes": str(max_bytes)})
    try:
        value: JsonValue = orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        # The parser's own depth limit is far above ours.
        if _depth_after(error.doc[: error.pos].encode(errors="replace")) > max_depth:
            raise _too_deep(max_depth) from None
        raise MeshError(Reason.INVALID_JSON, message=f"not valid JSON: {error.msg}") from None
    keys, floats = _measure(value, max_depth)
    # Every member has a colon: as many colons as keys means no duplicate key. Strings may contain more; those are
    # checked.
    if keys != payload.count(b":") and _count_keys(payload) != keys:
        raise MeshError(Reason.INVALID_JSON, message="an object has the same key twice")
    # An integer that did not fit is a float by now.
    if floats and _MAY_BE_ROUNDED.search(payload):
        _refuse_rounded_numbers(payload)
    return value


def parse_object(payload: bytes, *, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """Parse a JSON object; empty bytes are the empty object. Anything else raises INVALID_JSON.

    Raises PAYLOAD_TOO_LARGE also for too many lists and objects.
    """
    refuse_many_containers(payload)
    value = parse(payload, max_bytes=max_bytes) if payload else {}
    if not isinstance(value, dict):
        raise MeshError(Reason.INVALID_JSON, message="a JSON object is needed here")
    return value


def refuse_many_containers(payload: bytes) -> None:
    """Raise PAYLOAD_TOO_LARGE if JSON has more lists and objects than a request may have. Parses nothing."""
    if _count_brackets(payload) > MAX_CONTAINERS and _count_brackets(_ANY_STRING.sub(b"", payload)) > MAX_CONTAINERS:
        raise MeshError(Reason.PAYLOAD_TOO_LARGE, metadata={"limit_containers": str(MAX_CONTAINERS)})


def refuse_many_values(payload: bytes, limit: int) -> None:
    """Raise PAYLOAD_TOO_LARGE if JSON has more values than the limit. Parses nothing.

    A parsed value takes far more memory than its text.
    """
    # The second count leaves strings out; the number of substitutions is bounded, because each takes time.
    if _count_separators(payload) > limit and _count_separators(_ANY_STRING.sub(b"", payload, limit)) > limit:
        raise MeshError(Reason.PAYLOAD_TOO_LARGE, metadata={"limit_values": str(limit)})


def dump(value: Any) -> bytes:
    """Serialize; the order of keys is kept. Raises INVALID_JSON for values without a JSON form."""
    try:
        return orjson.dumps(value)
    except TypeError as error:
        raise MeshError(Reason.INVALID_JSON, message="the value has no JSON form") from error


def _measure(value: JsonValue, max_depth: int) -> tuple[int, bool]:
    """Count the keys of all objects, refuse deep nesting, and return whether there is a float."""
    keys, depth, floats = 0, 0, type(value) is float
    level: list[Any] = [value] if type(value) is dict or type(value) is list else []
    while level:
        below: list[Any] = []
        for item in level:
            if type(item) is dict:
                keys += len(item)
                item = item.values()
            kinds = set(map(type, item))
            if not kinds <= _PLAIN:
                floats = floats or float in kinds
                below.extend(v for v in item if type(v) is dict or type(v) is list)
        depth += 1
        if depth >= max_depth and below:
            raise _too_deep(max_depth)
        level = below
    return keys, floats


def _count_keys(payload: bytes) -> int:
    # One by one, so that other threads run meanwhile.
    return sum(match[1] == b":" for match in _STRING.finditer(payload))


def _count_brackets(text: bytes) -> int:
    return text.count(b"[") + text.count(b"{")


def _count_separators(text: bytes) -> int:
    """Return an upper bound of the number of values; separators inside strings are counted too."""
    return text.count(b",") + _count_brackets(text)


def _depth_after(read: bytes) -> int:
    """Return how many lists and objects are open at the end of the text."""
    bare = _ANY_STRING.sub(b"", read)
    return bare.count(b"[") + bare.count(b"{") - bare.count(b"]") - bare.count(b"}")


def _too_deep(max_depth: int) -> MeshError:
    return MeshError(Reason.PAYLOAD_TOO_LARGE, metadata={"limit_depth": str(max_depth)})


def is_exact_double(number: str) -> bool:
    """Return whether a decimal is the shortest or the 17-digit spelling of its double, whatever its zeros and exponent.

    `0.1` and `0.10000000000000001` are; `0.1000000000000000055`, `9007199254740993.0` and `1e-400` are not.
    """
    mantissa = number.lower().partition("e")[0].replace(".", "").strip("-0")
    if len(mantissa) > _DOUBLE_DIGITS:
        # Also bounds the work below.
        return False
    double = float(number)
    if repr(double) == number:
        # How Python and most other languages write it. Decimals take far longer.
        return True
    if not double or math.isinf(double):
        return not mantissa
    exact = Decimal(number)
    return exact in (Decimal(repr(double)), Decimal(f"{double:.17g}"))


def _refuse_rounded_numbers(payload: bytes) -> None:
    for match in _NUMBER.finditer(payload):
        token = match[1]
        if token is None:
            continue
        if token.lstrip(b"-").isdigit():
            if len(token) > _SHORT_DIGITS and not _survives(token):
                raise MeshError(Reason.INVALID_JSON, message="an integer does not fit into 64 bits")
        elif not is_exact_double(token.decode()):
            message = "a number has more digits than a double holds; send fewer, or send it as a string"
            raise MeshError(Reason.INVALID_JSON, message=message)


def _survives(token: bytes) -> bool:
    """Return whether an integer keeps all its digits: in 64 bits, or as the canonical form of a double."""
    if len(token.lstrip(b"-")) > _CANONICAL_DIGITS:
        return False
    if _LOWEST <= int(token) <= _HIGHEST:
        return True
    # Python writes a double of this size as its shortest digits and an exponent; RFC 8785 fills them up with zeros.
    mantissa = repr(float(token)).partition("e")[0]
    return mantissa.replace(".", "").encode() == token.rstrip(b"0")
