"""Idempotency keys that a restarted caller derives again.

A key is made by the caller before the first attempt and names one intent: this step of this session calls this tool with
these arguments. Whoever knows the same facts and the same secret derives the same key, so a retry after a crash carries
the key of the first attempt, and the mesh answers the first result instead of repeating the effect.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

import rfc8785

from toolmesh_sdk._wire.payload import dump


def derive_idempotency_key(
    secret: str | bytes, session_id: str, tool: str, step_id: str, arguments: Mapping[str, Any] | None = None
) -> str:
    """Return HMAC-SHA256(secret, parts) as 64 hex digits.

    The parts are session, tool, step and the canonical arguments, in this order. Each is preceded by its length as eight
    bytes, big-endian: without that, ("ab", "c") and ("a", "bc") would share a key. `tool` is used as it is written, so
    write it the same way in every attempt. No arguments and the empty object are the same intent.
    """
    code = hmac.new(secret.encode() if isinstance(secret, str) else secret, digestmod=hashlib.sha256)
    parts = (session_id.encode(), tool.encode(), step_id.encode(), canonical_json(dict(arguments or {})))
    for part in parts:
        code.update(len(part).to_bytes(8, "big") + part)
    return code.hexdigest()


def key_of_call(
    secret: str | bytes,
    session_id: str,
    tool: str,
    arguments: Mapping[str, Any] | None,
    *,
    step: str | None,
    given: str | None,
) -> str:
    """Return the key that a call carries: the one it was given, the one of its step, or none.

    Raises ValueError for a step without the secret that makes its key nobody else's, and for both a step and a key.
    """
    if step is None:
        return given or ""
    if given:
        raise ValueError("a call has a step or an idempotency key, not both")
    if not step or not secret:
        raise ValueError("the key of a step needs the step's name and the client's key_secret")
    return derive_idempotency_key(secret, session_id, tool, step, arguments)


def canonical_json(value: Any) -> bytes:
    """Return the one byte string of a JSON value: RFC 8785, with one extension.

    Keys are sorted by their UTF-16 code units, there is no white space, and floats are written as ECMAScript writes them,
    so 1.0 and 1 are the same. The extension: an integer past 2^53 keeps all its digits, where RFC 8785 has no form for it.
    """
    # Through JSON first, so that the key is made of exactly what a call would send.
    return _write(json.loads(dump(value)))


def _write(value: Any) -> bytes:
    if isinstance(value, dict):
        ordered = sorted(value.items(), key=lambda item: item[0].encode("utf-16-be"))
        return b"{" + b",".join(dump(key) + b":" + _write(item) for key, item in ordered) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join(_write(item) for item in value) + b"]"
    return rfc8785.dumps(value) if isinstance(value, float) else dump(value)
