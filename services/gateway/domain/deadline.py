"""The time limit of a call: the least that its caller sets, or the method's default."""

from __future__ import annotations

import re

from services.gateway.domain.errors import deadline_malformed

HIGHEST_MS = 300_000
_WHOLE = re.compile(r"[0-9]{1,6}")


def parse_deadline(text: str) -> int:
    """Read the `x-deadline-ms` header; anything but 1 to 300000 raises INVALID_REQUEST."""
    if not _WHOLE.fullmatch(text) or not 1 <= int(text) <= HIGHEST_MS:
        raise deadline_malformed(HIGHEST_MS)
    return int(text)


def allowed_seconds(header_ms: int | None, param_ms: float | None, default: float) -> float:
    """Return the seconds from the arrival of the request to its deadline."""
    limits = [ms / 1000 for ms in (header_ms, param_ms) if ms is not None]
    return min(limits, default=default)
