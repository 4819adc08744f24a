"""Patterns with `*`, and whether one of them covers another.

A `*` stands for any run of characters, none included; every other character stands for itself. Nothing else is special.
"""

from __future__ import annotations

ANY = "*"


def matches(pattern: str, text: str) -> bool:
    """Say whether the pattern matches the whole text. Takes at most as many steps as the product of both lengths."""
    if ANY not in pattern or pattern == ANY:
        # Most patterns are a name or everything.
        return pattern in (ANY, text)
    at, star, resume = 0, -1, 0
    position = 0
    while position < len(text):
        # A star is looked for first: the text may itself hold one, and only a star of the pattern may take it for more.
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
    """Say whether everything that `child` matches is matched by `parent`; a no may mean that it cannot be shown.

    The child is read as a text in which its stars are letters like no other. Only a star of the parent can take such a letter, and that
    star would take whatever the child's star may stand for.
    """
    return matches(parent, child)
