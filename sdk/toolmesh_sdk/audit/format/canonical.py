"""JSON by RFC 8785, a second time: parsed strictly, written canonically, with every integer exact.

RFC 8785 has no form for integers past 2^53; the log writes them with all their digits, and so does this.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

import rfc8785


class UnreadableJsonError(ValueError):
    """Not JSON, or JSON that two readers could understand differently."""


def parse(text: bytes | str) -> Any:
    """Parse UTF-8 JSON. Raises UnreadableJsonError for what is malformed, for a key that is there twice, NaN and Infinity."""
    try:
        return _DECODER.decode(text if isinstance(text, str) else text.decode())
    except (ValueError, RecursionError) as error:
        raise UnreadableJsonError(str(error)) from None


def canonical(value: Any) -> bytes:
    """Return the canonical bytes of a parsed value. Raises UnreadableJsonError for what has none."""
    try:
        return _write(value)
    except (ValueError, RecursionError) as error:
        raise UnreadableJsonError(str(error)) from None


def quick_canonical(value: Any) -> bytes:
    """Return the canonical bytes of a value whose keys are in the basic plane and which holds no fraction; of any other
    value, bytes that may be different. Good for a first try where a hash decides."""
    try:
        return _encode(value).encode()
    except (ValueError, RecursionError) as error:
        raise UnreadableJsonError(str(error)) from None


_encode = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False).encode


_DECODER = json.JSONDecoder(
    object_pairs_hook=lambda pairs: _without_duplicates(pairs), parse_constant=lambda name: _refused(name)
)


def _write(value: Any) -> bytes:
    if isinstance(value, dict):
        ordered = sorted(value.items(), key=lambda item: item[0].encode("utf-16-be"))
        return b"{" + b",".join(rfc8785.dumps(key) + b":" + _write(item) for key, item in ordered) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join(map(_write, value)) + b"]"
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value).encode()
    return bytes(rfc8785.dumps(value))


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("an object has the same key twice")
    return made


def _refused(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
