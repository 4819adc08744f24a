"""Canonical JSON (RFC 8785) and the digests made of it.

Integers are written with all their digits, also past 2^53 where RFC 8785 would go through a double: two different
64-bit integers never share a digest. Within the range of RFC 8785 the bytes are exactly its bytes.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import orjson
import rfc8785

from libs.common.errors import MeshError, Reason

# What a float can be written as: a fraction, an exponent, or null for NaN.
_MAY_BE_FLOAT = re.compile(rb"[0-9][.eE]|null")
_SHORT = 512


def canonical(value: Any) -> bytes:
    """Return the canonical form: equal values have equal bytes."""
    # orjson's sorted form equals RFC 8785 except for floats and for keys beyond the basic plane; see the tests.
    try:
        form = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return _write(value)
    # A fast check for most values. Long values, and texts that look like floats, are checked part by part.
    if len(form) <= _SHORT and form.isascii() and not _MAY_BE_FLOAT.search(form):
        return form
    return form if _plain(value) else _write(value)


def digest(value: Any) -> str:
    """Return `sha256:` and the hex digest of the canonical form."""
    return digest_bytes(canonical(value))


def digest_bytes(payload: bytes) -> str:
    """Return `sha256:` and the hex digest of the bytes as they are."""
    return "sha256:" + hashlib.sha256(payload).hexdigest()


def _plain(value: Any) -> bool:
    kind = type(value)
    if kind is dict:
        return all(type(k) is str and k.isascii() and _plain(v) for k, v in value.items())
    if kind is list:
        return all(_plain(item) for item in value)
    return kind is str or kind is int or kind is bool or value is None


def _write(value: Any) -> bytes:
    if isinstance(value, dict):
        ordered = sorted(value.items(), key=lambda item: item[0].encode("utf-16-be"))
        return b"{" + b",".join(orjson.dumps(k) + b":" + _write(v) for k, v in ordered) + b"}"
    if isinstance(value, list | tuple):
        return b"[" + b",".join(_write(item) for item in value) + b"]"
    if isinstance(value, float):
        return _number(value)
    try:
        return orjson.dumps(value)
    except TypeError as error:
        raise MeshError(Reason.INVALID_JSON, message="the value has no canonical form") from error


def _number(value: float) -> bytes:
    try:
        return rfc8785.dumps(value)
    except rfc8785.FloatDomainError as error:
        raise MeshError(Reason.INVALID_JSON, message="NaN and Infinity have no canonical form") from error
