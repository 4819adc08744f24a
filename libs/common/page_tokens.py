"""Page tokens that are bound to their query (AIP-158)."""

from __future__ import annotations

import base64
import binascii
import hashlib
from datetime import datetime
from typing import Any

import orjson

from libs.common.errors import MeshError, Reason
from libs.common.json.canonical import canonical


def encode(query: Any, cursor: list[Any]) -> str:
    """Return an opaque token that continues `query` after `cursor`."""
    body = orjson.dumps([_fingerprint(query), cursor])
    return base64.urlsafe_b64encode(body).rstrip(b"=").decode()


def decode(query: Any, token: str) -> list[Any] | None:
    """Return the cursor of a token, or None for the first page. A token of another query raises PAGE_TOKEN_INVALID."""
    if not token:
        return None
    try:
        fingerprint, cursor = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except (binascii.Error, ValueError, TypeError):
        raise MeshError(Reason.PAGE_TOKEN_INVALID) from None
    if fingerprint != _fingerprint(query) or not isinstance(cursor, list):
        raise MeshError(Reason.PAGE_TOKEN_INVALID)
    return cursor


def decode_cursor(query: Any, token: str) -> int | None:
    """Return the cursor of a token that holds one number; None for the first page.

    The caller may have forged the token: a number that no row can have raises PAGE_TOKEN_INVALID.
    """
    cursor = decode(query, token)
    if cursor is None:
        return None
    if len(cursor) != 1 or type(cursor[0]) is not int or not 0 <= cursor[0] < 2**63:
        raise MeshError(Reason.PAGE_TOKEN_INVALID)
    return cursor[0]


def decode_time_cursor(query: Any, token: str) -> tuple[datetime, str] | None:
    """Return the cursor of a token that holds a time and an id; None for the first page.

    The caller may have forged the token: a time without a zone and an id that no row can have raise PAGE_TOKEN_INVALID.
    """
    cursor = decode(query, token)
    if cursor is None:
        return None
    try:
        time, row_id = datetime.fromisoformat(cursor[0]), cursor[1]
    except (IndexError, TypeError, ValueError):
        raise MeshError(Reason.PAGE_TOKEN_INVALID) from None
    if len(cursor) != 2 or time.tzinfo is None or not isinstance(row_id, str) or "\0" in row_id:
        raise MeshError(Reason.PAGE_TOKEN_INVALID)
    return time, row_id


def _fingerprint(query: Any) -> str:
    return hashlib.sha256(canonical(query)).hexdigest()[:24]
