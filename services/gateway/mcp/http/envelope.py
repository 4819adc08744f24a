"""Decides which revision a request is in, and checks the envelope that a stateless request carries."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from mcp_types import CLIENT_CAPABILITIES_META_KEY, PROTOCOL_VERSION_META_KEY
from mcp_types.jsonrpc import HEADER_MISMATCH, INVALID_PARAMS, INVALID_REQUEST, UNSUPPORTED_PROTOCOL_VERSION

from services.gateway.mcp.messages import Message
from services.gateway.mcp.protocol import (
    METHOD_HEADER,
    NAME_HEADER,
    SESSION_VERSIONS,
    STATELESS_VERSIONS,
    VERSION_HEADER,
    ProtocolError,
)

_OLDER_VERSIONS = ("2024-11-05", "2025-03-26")
_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"} | dict.fromkeys(
    ("tasks/get", "tasks/update", "tasks/cancel"), "taskId"
)
_BASE64 = ("=?base64?", "?=")


def is_stateless(message: Message | None, headers: Mapping[bytes, bytes]) -> bool:
    """Return whether the request is in a stateless revision.

    A revision that is not known counts as one, because only those say which versions there are.
    """
    version = headers.get(VERSION_HEADER)
    if version is None:
        return message is not None and PROTOCOL_VERSION_META_KEY in _meta_of(message.params)
    return version.decode("latin-1") not in (*SESSION_VERSIONS, *_OLDER_VERSIONS)


def check_session_version(headers: Mapping[bytes, bytes]) -> str:
    """Return the revision of a request in a session; the newest one where the header is missing."""
    version = headers.get(VERSION_HEADER, SESSION_VERSIONS[-1].encode()).decode("latin-1")
    if version not in SESSION_VERSIONS:
        raise ProtocolError(INVALID_REQUEST, f"the revisions with sessions are {', '.join(SESSION_VERSIONS)}")
    return version


def check_envelope(message: Message, headers: Mapping[bytes, bytes]) -> str:
    """Return the revision of a stateless request.

    Its `_meta` names the revision and the client's capabilities, and its headers repeat what intermediaries route by.
    """
    meta = _meta_of(message.params)
    missing = [key for key in (PROTOCOL_VERSION_META_KEY, CLIENT_CAPABILITIES_META_KEY) if key not in meta]
    if missing:
        raise ProtocolError(INVALID_PARAMS, f"params._meta lacks {' and '.join(missing)}")
    version = meta[PROTOCOL_VERSION_META_KEY]
    _check_header(headers, VERSION_HEADER, version)
    _check_header(headers, METHOD_HEADER, message.method)
    named_by = _NAMED_BY.get(message.method)
    name = message.params.get(named_by) if named_by else None
    if name is not None:
        _check_header(headers, NAME_HEADER, name)
    return check_version(version)


def check_version(version: str) -> str:
    """Return the version if it is a stateless one that is served."""
    if version not in STATELESS_VERSIONS:
        data = {"supported": list(STATELESS_VERSIONS), "requested": version}
        raise ProtocolError(UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", data)
    return version


def _meta_of(params: dict[str, Any]) -> dict[str, Any]:
    meta = params.get("_meta")
    return meta if type(meta) is dict else {}


def _check_header(headers: Mapping[bytes, bytes], name: bytes, expected: Any) -> None:
    # A repeated header was joined with a comma, so it equals nothing in the body.
    given = headers.get(name)
    if given is None or _decoded(given.decode("latin-1")) != expected:
        raise ProtocolError(HEADER_MISMATCH, f"the {name.decode()} header is missing or differs from the body")


def _decoded(value: str) -> str | None:
    """Return a header's value; one that is no plain ASCII travels as `=?base64?...?=`."""
    opening, closing = _BASE64
    if not (value.startswith(opening) and value.endswith(closing)):
        return value
    encoded = value[len(opening) : -len(closing)]
    try:
        decoded = base64.b64decode(encoded, validate=True)
        return decoded.decode() if base64.b64encode(decoded).decode() == encoded else None
    except (binascii.Error, UnicodeDecodeError):
        return None
