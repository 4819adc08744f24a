"""Removes credentials from what a service sends, because a service may repeat what it was sent."""

from __future__ import annotations

from collections.abc import Iterable

from libs.common.json.jsonio import dump

_REDACTED = b"[redacted]"
# A text inside JSON may be JSON itself, as the content of MCP tools often is.
_LEVELS = 2


def remove_values(content: bytes, values: Iterable[str]) -> bytes:
    """Return the content without the values, also as JSON spells them, and JSON inside of JSON."""
    for value in values:
        spelled = value
        for _ in range(_LEVELS + 1):
            content = content.replace(spelled.encode(), _REDACTED)
            spelled = dump(spelled)[1:-1].decode()
    return content
