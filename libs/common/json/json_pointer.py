"""JSON Pointers, with `*` for every entry of a list and every member of an object. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

EVERY = "*"
_LONGEST_INDEX = 9


def steps_of(pointer: str) -> tuple[str, ...]:
    """Return the unescaped steps of a pointer. The empty pointer has none: it means the whole value."""
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:])


def pointer_of(steps: Iterable[str | int]) -> str:
    """Return the pointer that consists of these steps."""
    return "".join(f"/{escaped(str(step))}" for step in steps)


def escaped(step: str) -> str:
    """Return a step as it is written in a pointer."""
    return step.replace("~", "~0").replace("/", "~1")


def entries(value: Any, step: str) -> Iterator[Any]:
    """Yield the keys or indices that one step selects. `*` selects all, also a key named `*`."""
    if isinstance(value, dict):
        yield from list(value) if step == EVERY else [step] if step in value else []
    elif isinstance(value, list):
        if step == EVERY:
            yield from range(len(value))
        elif is_whole(step) and int(step) < len(value):
            yield int(step)


def places(value: Any, steps: Sequence[str], at: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the pointer and the value of every match of the steps."""
    if not steps:
        yield at, value
        return
    for name in entries(value, steps[0]):
        yield from places(value[name], steps[1:], f"{at}/{escaped(str(name))}")


def is_whole(text: str) -> bool:
    """Return whether a text is a whole number of at most nine digits."""
    return text.isascii() and text.isdecimal() and len(text) <= _LONGEST_INDEX
