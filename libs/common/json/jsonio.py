"""JSON as the contract allows it: nothing is rounded, dropped or decided by accident.

orjson is fast but lenient in two ways that matter for evidence: a duplicate key silently wins over the first, and an
integer past 64 bits silently becomes a float. Both are found here with a cheap second look instead of a slow parser.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

import orjson

from libs.common.errors import MeshError, Reason

JsonValue: TypeAlias = bool | int | float | str | list[Any] | dict[str, Any] | None

MAX_DEPTH = 64
MAX_BYTES = 3 * 1024 * 1024

# Takes every string whole, with the colon behind it if it is a key: in valid JSON nothing else is followed by one. The
# possessive quantifiers keep a long string from being tried again at each of its characters.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"\s*+(:?)')
# The same, and a string that breaks off takes the rest: for text that is not valid JSON.
_ANY_STRING = re.compile(rb'(?s)"[^"\\]*+(?:\\.[^"\\]*+)*+"?+')
# 18 digits always fit into 64 bits; only longer runs need a closer look.
_LONG_DIGITS = re.compile(rb"[0-9]{19}")
_NUMBER = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|(-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)')
# What is neither a float nor made of parts.
_PLAIN = frozenset({str, int, bool, type(None)})
_LOWEST, _HIGHEST = -(2**63), 2**64 - 1


def parse(payload: bytes, *, max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH) -> JsonValue:
    """Parse UTF-8 JSON strictly.

    Raises INVALID_JSON for malformed text, duplicate keys, NaN, Infinity, numbers beyond a double's range, lone
    surrogates and integers outside -2^63 .. 2^64-1; PAYLOAD_TOO_LARGE for too many bytes or levels.
    """
    if len(payload) > max_bytes:
        raise MeshError(Reason.PAYLOAD_TOO_LARGE, metadata={"limit_bytes": str(max_bytes)})
    try:
        value: JsonValue = orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        # The parser has a limit of its own, far above; whatever it stopped at, the text was too deep before.
        if _depth_after(error.doc[: error.pos].encode(errors="replace")) > max_depth:
            raise _too_deep(max_depth) from None
        raise MeshError(Reason.INVALID_JSON, message=f"not valid JSON: {error.msg}") from None
    keys, floats = _measure(value, max_depth)
    # Every member has a colon, so as many colons as keys means no key twice; more may be in texts, and are looked at more closely.
    if keys != payload.count(b":") and _STRING.findall(payload).count(b":") != keys:
        raise MeshError(Reason.INVALID_JSON, message="an object has the same key twice")
    # An integer that did not fit has become a float by now.
    if floats and _LONG_DIGITS.search(payload):
        _refuse_wide_integers(payload)
    return value


def parse_object(payload: bytes, *, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """Parse a JSON object; empty bytes mean the empty object. Anything but an object raises INVALID_JSON."""
    value = parse(payload, max_bytes=max_bytes) if payload else {}
    if not isinstance(value, dict):
        raise MeshError(Reason.INVALID_JSON, message="a JSON object is needed here")
    return value


def dump(value: Any) -> bytes:
    """Serialise for the wire; the order of keys is kept. Raises INVALID_JSON for what has no JSON form."""
    try:
        return orjson.dumps(value)
    except TypeError as error:
        raise MeshError(Reason.INVALID_JSON, message="the value has no JSON form") from error


def _measure(value: JsonValue, max_depth: int) -> tuple[int, bool]:
    """Count the keys of all objects, level by level, and refuse what is nested too deeply. Say also whether a float is among them."""
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


def _depth_after(read: bytes) -> int:
    """Say how many lists and objects are open at the end of what was read, wherever in a text that is."""
    bare = _ANY_STRING.sub(b"", read)
    return bare.count(b"[") + bare.count(b"{") - bare.count(b"]") - bare.count(b"}")


def _too_deep(max_depth: int) -> MeshError:
    return MeshError(Reason.PAYLOAD_TOO_LARGE, metadata={"limit_depth": str(max_depth)})


def _refuse_wide_integers(payload: bytes) -> None:
    for token in _NUMBER.findall(payload):
        if token and token.lstrip(b"-").isdigit() and (len(token) > 20 or not _LOWEST <= int(token) <= _HIGHEST):
            raise MeshError(Reason.INVALID_JSON, message="an integer does not fit into 64 bits")
