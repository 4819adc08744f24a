"""The deadline that a caller sets by header, for JSON-RPC and gRPC alike."""

from __future__ import annotations

import re

from libs.common.errors import MeshError, Reason, Violation

HEADER = "x-deadline-ms"
HIGHEST_MS = 300_000
# The edge puts this into the header when `grpc-timeout` is malformed, which gRPC would ignore.
MALFORMED_TIMEOUT = "grpc-timeout"
_SECONDS = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3})?", re.ASCII)
_WHOLE = re.compile(r"[0-9]{1,6}")


def parse_deadline(text: str) -> int:
    """Read the `x-deadline-ms` header; anything but 1 to 300000 raises INVALID_REQUEST."""
    if not _WHOLE.fullmatch(text) or not 1 <= int(text) <= HIGHEST_MS:
        raise _malformed(text)
    return int(text)


def parse_timeout(text: str) -> int:
    """Read the `Request-Timeout` header, seconds with up to three decimals, as milliseconds; anything but 0.001 to 300
    raises INVALID_REQUEST."""
    milliseconds = round(float(text) * 1000) if _SECONDS.fullmatch(text) else 0
    if not 1 <= milliseconds <= HIGHEST_MS:
        rule = f"seconds from 0.001 to {HIGHEST_MS // 1000}, with up to three decimals"
        raise MeshError(Reason.INVALID_REQUEST, violations=[Violation("request-timeout", "range", rule)])
    return milliseconds


def _malformed(text: str) -> MeshError:
    violation = Violation(HEADER, "range", f"a whole number of milliseconds from 1 to {HIGHEST_MS}")
    if text == MALFORMED_TIMEOUT:
        violation = Violation(MALFORMED_TIMEOUT, "form", "one to eight digits and a unit: H, M, S, m, u or n")
    return MeshError(Reason.INVALID_REQUEST, violations=[violation])


def allowed_seconds(header_ms: int | None, param_ms: float | None, default: float) -> float:
    """Return the seconds from the arrival of the request to its deadline."""
    limits = [ms / 1000 for ms in (header_ms, param_ms) if ms is not None]
    return min(limits, default=default)
