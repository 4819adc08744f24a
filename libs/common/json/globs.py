"""Glob patterns with `*`, and whether one covers another.

A `*` stands for any run of characters, also an empty one; every other character stands for itself.
"""

from __future__ import annotations

ANY = "*"


def matches(pattern: str, text: str) -> bool:
    """Return whether the pattern matches the whole text, in one pass over both."""
    if ANY not in pattern or pattern == ANY:
        # Most patterns are a name or everything.
        return pattern in (ANY, text)
    first, *middle, last = pattern.split(ANY)
    at, end = len(first), len(text) - len(last)
    if end < at or not (text.startswith(first) and text.endswith(last)):
        return False
    for piece in middle:
        # The leftmost place is as good as any: a star takes whatever lies between.
        at = text.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


def covers(parent: str, child: str) -> bool:
    """Return whether `parent` matches everything that `child` matches; False may mean that it cannot be shown.

    The child is matched as a text in which its stars are unique characters. Only a star of the parent can match such a
    character, and that star would match whatever the child's star stands for.
    """
    return matches(parent, child)
