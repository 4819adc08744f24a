"""Removes credentials from what a service sends, because a service may repeat what it was sent."""

from __future__ import annotations

from collections.abc import Iterable

from libs.common.json.jsonio import dump

_REDACTED = b"[redacted]"
# A text inside JSON may be JSON itself, as the content of MCP tools often is.
_LEVELS = 2
# Fewer characters at an end of a text may stand there by chance, and tell little.
_LEAST_EDGE = 6


def remove_values(content: bytes, values: Iterable[str]) -> bytes:
    """Return the content without the values, also as JSON spells them, and JSON inside of JSON."""
    for value in values:
        spelled = value
        for _ in range(_LEVELS + 1):
            content = content.replace(spelled.encode(), _REDACTED)
            spelled = dump(spelled)[1:-1].decode()
    return content


def remove_cut_values(text: str, values: Iterable[str]) -> str:
    """Return a text without the values, also where it was cut amid one: what is left of it there is removed too."""
    for value in values:
        spelled = value
        for _ in range(_LEVELS + 1):
            text = _remove_edges(text.replace(spelled, _REDACTED.decode()), spelled)
            spelled = dump(spelled)[1:-1].decode()
    return text


def _remove_edges(text: str, value: str) -> str:
    """Remove a beginning of the value at the end of the text, and an end of it at the beginning."""
    redacted = _REDACTED.decode()
    begun = text[-(len(value) - 1) :] if len(value) > 1 else ""
    # Only where the least edge of the value stands can one begin: `find` skips the rest.
    at = begun.find(value[:_LEAST_EDGE])
    while at >= 0 and len(begun) - at >= _LEAST_EDGE:
        if value.startswith(begun[at:]):
            text = text[: len(text) - (len(begun) - at)] + redacted
            break
        at = begun.find(value[:_LEAST_EDGE], at + 1)
    ended = text[: len(value) - 1]
    end = ended.rfind(value[-_LEAST_EDGE:])
    while end >= 0:
        size = end + _LEAST_EDGE
        if value.endswith(ended[:size]):
            return redacted + text[size:]
        end = ended.rfind(value[-_LEAST_EDGE:], 0, size - 1)
    return text
