"""Glob patterns with `*`, and whether one covers another.

A `*` stands for any run of characters, also an empty one; every other character stands for itself.
"""

from __future__ import annotations

ANY = "*"


def matches(pattern: str, text: str) -> bool:
    """Return whether the pattern matches the whole text, in at most len(pattern) * len(text) steps."""
    if ANY not in pattern or pattern == ANY:
        # Most patterns are a name or everything.
        return pattern in (ANY, text)
    at, star, resume = 0, -1, 0
    position = 0
    while position < len(text):
        # The star is checked first: the text may itself contain one.
        if at < len(pattern) and pattern[at] == ANY:
            star, resume = at, position
            at += 1
        elif at < len(pattern) and pattern[at] == text[position]:
            at, position = at + 1, position + 1
        elif star >= 0:
            resume += 1
            at, position = star + 1, resume
        else:
            return False
    return all(rest == ANY for rest in pattern[at:])


def covers(parent: str, child: str) -> bool:
    """Return whether `parent` matches everything that `child` matches; False may mean that it cannot be shown.

    The child is matched as a text in which its stars are unique characters. Only a star of the parent can match such a
    character, and that star would match whatever the child's star stands for.
    """
    return matches(parent, child)
