"""Arguments of a call as arguments of a program. Pure.

`{name}` inside an element stands for the argument of that name; `{{` and `}}` are braces. What is put there is one element, or a part
of one, whatever it holds: nothing splits it, and no shell ever reads it. What could still change the program's meaning is refused
instead of being mended: a value that would begin an element with `-`, where the program might take it for an option. A literal
beginning (`--name={name}`) or a `--` before it makes any value safe.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from libs.common.errors import Violation
from libs.common.json.jsonio import dump
from services.executor.domain.errors import injection_detected

_PART = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}")
_LITERAL = {"{{": "{", "}}": "}"}
# The kernel takes no longer one.
MAX_ELEMENT_BYTES = 128 * 1024 - 1
# Nor more than 2 MiB in all, of which the sandbox and the environment take their part.
MAX_BYTES = 1 << 20


def argv_of(templates: Sequence[str], arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the elements. Raises INJECTION_DETECTED with every argument that could be taken for something else. An element that
    is nothing but an absent argument is left out; an absent argument inside an element is empty there."""
    made: list[str] = []
    violations: list[Violation] = []
    behind_dashes = False
    for template in templates:
        names = [name for name in _PART.findall(template) if name]
        if len(names) == 1 and template == f"{{{names[0]}}}" and arguments.get(names[0]) is None:
            continue
        element = _filled(template, arguments)
        violations += _broken(template, element, arguments, names, behind_dashes)
        made.append(element)
        behind_dashes = behind_dashes or template == "--"
    if sum(map(_size, made)) > MAX_BYTES:
        violations.append(Violation("", "command.length", "is too long in all for a command"))
    if violations:
        raise injection_detected(violations)
    return tuple(made)


def _filled(template: str, arguments: Mapping[str, Any]) -> str:
    return _PART.sub(lambda part: _text(arguments.get(part[1])) if part[1] else _LITERAL[part[0]], template)


def _text(value: Any) -> str:
    """A text as it is, anything else as JSON writes it, nothing for null."""
    if value is None:
        return ""
    return value if isinstance(value, str) else dump(value).decode()


def _broken(
    template: str, element: str, arguments: Mapping[str, Any], names: Sequence[str], behind_dashes: bool
) -> list[Violation]:
    found = [
        Violation(f"/{name}", "command.null", "holds the null character")
        for name in names
        if "\0" in _text(arguments.get(name))
    ]
    open_ended = bool(names) and template.startswith("{") and not template.startswith("{{") and not behind_dashes
    if open_ended and element.startswith("-"):
        found.append(Violation(f"/{names[0]}", "command.option", "would be taken for an option"))
    if _size(element) > MAX_ELEMENT_BYTES:
        found.append(Violation(f"/{names[0]}" if names else "", "command.length", "is too long for a command"))
    return found


def _size(element: str) -> int:
    return len(element.encode("utf-8", "surrogatepass"))
