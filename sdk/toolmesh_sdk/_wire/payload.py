"""Encodes arguments and decodes results as strict JSON with exact integers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from toolmesh.common.v1.error_table import Reason

from toolmesh_sdk.errors import error_for_reason

MAX_ARGUMENT_BYTES = 3 * 1024 * 1024


def encode_arguments(arguments: Mapping[str, Any] | None) -> bytes:
    """Encode the arguments of a call. None and the empty mapping are both the empty object.

    Raises InvalidInputError: INVALID_JSON for values without a JSON form (including NaN and Infinity),
    PAYLOAD_TOO_LARGE past the limit of the mesh.
    """
    if not arguments:
        return b""
    if not isinstance(arguments, Mapping):
        raise error_for_reason(Reason.INVALID_JSON, message="arguments must be a mapping of names to values")
    payload = dump(dict(arguments))
    if len(payload) > MAX_ARGUMENT_BYTES:
        raise error_for_reason(Reason.PAYLOAD_TOO_LARGE, metadata={"limit_bytes": str(MAX_ARGUMENT_BYTES)})
    return payload


def dump(value: Any) -> bytes:
    """Encode a value; integers keep all their digits. Raises INVALID_JSON for a value without a JSON form."""
    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise error_for_reason(Reason.INVALID_JSON, message=f"the value has no JSON form: {error}") from None


def parse(payload: bytes) -> Any:
    """Decode a payload of the mesh; integers of any size stay integers. Empty bytes are None."""
    if not payload:
        return None
    try:
        return json.loads(payload, parse_constant=_refuse_constant)
    except ValueError as error:
        raise error_for_reason(Reason.RESULT_INVALID, message=f"the mesh sent invalid JSON: {error}") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
