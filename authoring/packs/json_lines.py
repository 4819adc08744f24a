"""Finds the line of a value in the text of a JSON document. Pure."""

from __future__ import annotations

import json
import re

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],]|[^\s{}\[\],:"]+')


def line_of_pointer(text: str, pointer: str) -> int:
    """Return the line of the value at a JSON Pointer, or of the nearest value around it that exists."""
    wanted = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
    best_depth, best_line = 0, 1
    # Each open container: the name or number of its current member, and whether it is an object.
    path: list[list[object]] = []
    expects_name = False
    for token in _TOKEN.finditer(text):
        word = token[0]
        if expects_name and word.startswith('"'):
            path[-1][0], expects_name = _text(word), False
            continue
        if word == ",":
            expects_name = bool(path[-1][1]) if path else False
            if path and not expects_name:
                path[-1][0] = int(str(path[-1][0])) + 1
            continue
        if word in "}]":
            if path:
                path.pop()
            expects_name = False
            continue
        steps = [str(step) for step, _ in path]
        if len(steps) > best_depth and steps == wanted[: len(steps)]:
            best_depth, best_line = len(steps), text.count("\n", 0, token.start()) + 1
        if word in "{[":
            path.append([0, word == "{"])
            expects_name = word == "{"
    return best_line


def _text(word: str) -> str:
    try:
        return str(json.loads(word, strict=False))
    except ValueError:
        return word[1:-1]
