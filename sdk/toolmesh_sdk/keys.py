"""Derives idempotency keys that are the same after a restart.

A key identifies one intent: a step of a session calls a tool with certain arguments. The same inputs and secret give
the same key, so a retry after a crash has the key of the first attempt, and the mesh returns the first result instead
of repeating the effect.
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

    The parts are session, tool, step and the canonical arguments, in this order. Each is preceded by its length as
    eight bytes, big-endian: otherwise ("ab", "c") and ("a", "bc") would share a key. `tool` is used literally, so
    write it the same way in every attempt. No arguments and the empty object are the same intent.
    """
    code = hmac.new(secret.encode() if isinstance(secret, str) else secret, digestmod=hashlib.sha256)
    parts = (session_id.encode(), tool.encode(), step_id.encode(), canonical_json(dict(arguments or {})))
    for part in parts:
        code.update(len(part).to_bytes(8, "big") + part)
    return code.hexdigest()


def resolve_idempotency_key(
    secret: str | bytes,
    session_id: str,
    tool: str,
    arguments: Mapping[str, Any] | None,
    *,
    step: str | None,
    explicit: str | None,
) -> str:
    """Return the key of a call: the explicit one, the one derived from its step, or none.

    Raises ValueError for a step without a secret, and for both a step and a key.
    """
    if step is None:
        return explicit or ""
    if explicit:
        raise ValueError("a call has a step or an idempotency key, not both")
    if not step or not secret:
        raise ValueError("the key of a step needs the step's name and the client's key_secret")
    return derive_idempotency_key(secret, session_id, tool, step, arguments)


def canonical_json(value: Any) -> bytes:
    """Return the canonical bytes of a JSON value: RFC 8785, with one extension.

    Keys are sorted by UTF-16 code units, there is no white space, and floats are written as in ECMAScript, so 1.0 and 1
    are the same. The extension: an integer past 2^53, which RFC 8785 excludes, keeps all its digits.
    """
    # Encoded as JSON first, so that the key covers exactly what a call sends.
    return _write(json.loads(dump(value)))


def _write(value: Any) -> bytes:
    if isinstance(value, dict):
        ordered = sorted(value.items(), key=lambda item: item[0].encode("utf-16-be"))
        return b"{" + b",".join(dump(key) + b":" + _write(item) for key, item in ordered) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join(_write(item) for item in value) + b"]"
    return rfc8785.dumps(value) if isinstance(value, float) else dump(value)
