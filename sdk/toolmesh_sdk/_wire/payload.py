"""JSON as it travels: strict on the way out, exact on the way in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from toolmesh.common.v1.error_table import Reason

from toolmesh_sdk.errors import error_of

MAX_ARGUMENT_BYTES = 3 * 1024 * 1024


def encode_arguments(arguments: Mapping[str, Any] | None) -> bytes:
    """Return the bytes of an Invoke request. None and the empty mapping are both the empty object.

    Raises InvalidInputError before anything is sent: INVALID_JSON for what has no JSON form (NaN and Infinity included),
    PAYLOAD_TOO_LARGE past the contract's limit.
    """
    if not arguments:
        return b""
    if not isinstance(arguments, Mapping):
        raise error_of(Reason.INVALID_JSON, message="arguments are a mapping of names to values")
    payload = dump(dict(arguments))
    if len(payload) > MAX_ARGUMENT_BYTES:
        raise error_of(Reason.PAYLOAD_TOO_LARGE, metadata={"limit_bytes": str(MAX_ARGUMENT_BYTES)})
    return payload


def dump(value: Any) -> bytes:
    """Serialise; every integer keeps all its digits. Raises INVALID_JSON for what has no JSON form."""
    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise error_of(Reason.INVALID_JSON, message=f"the value has no JSON form: {error}") from None


def parse(payload: bytes) -> Any:
    """Parse what the mesh sent; integers of any size stay integers. Empty bytes are None."""
    if not payload:
        return None
    try:
        return json.loads(payload, parse_constant=_refuse_constant)
    except ValueError as error:
        raise error_of(Reason.RESULT_INVALID, message=f"the mesh sent something that is not JSON: {error}") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
