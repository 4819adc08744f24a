"""Builds the argument vector of a program from templates and the arguments of a call. Pure.

`{name}` in a template is replaced by the argument of that name; `{{` and `}}` are literal braces. A value never becomes
more than one element, and no shell reads it. A value that would begin an element with `-`, which the program might take
for an option, is refused. A literal prefix (`--name={name}`) or a preceding `--` makes any value safe.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from libs.common.errors import Violation
from libs.common.json.json_pointer import pointer_of
from libs.common.json.jsonio import dump
from services.executor.domain.errors import injection_detected

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}")
_LITERAL = {"{{": "{", "}}": "}"}
# The kernel's limit for one element.
MAX_ELEMENT_BYTES = 128 * 1024 - 1
# The kernel's limit for all elements is 2 MiB, shared with the sandbox's own arguments and the environment.
MAX_BYTES = 1 << 20


def build_argv(templates: Sequence[str], arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Fill the templates. Raises INJECTION_DETECTED with every unsafe argument.

    A template that is only an absent argument is left out; an absent argument inside a template becomes empty.
    """
    elements: list[str] = []
    violations: list[Violation] = []
    after_dashes = False
    for template in templates:
        names = [name for name in _PLACEHOLDER.findall(template) if name]
        if len(names) == 1 and template == f"{{{names[0]}}}" and arguments.get(names[0]) is None:
            continue
        element = _fill(template, arguments)
        violations += _violations(template, element, arguments, names, after_dashes)
        elements.append(element)
        after_dashes = after_dashes or template == "--"
    if sum(map(_size, elements)) > MAX_BYTES:
        violations.append(Violation("", "command.length", "is too long in all for a command"))
    if violations:
        raise injection_detected(violations)
    return tuple(elements)


def _fill(template: str, arguments: Mapping[str, Any]) -> str:
    return _PLACEHOLDER.sub(lambda match: _text(arguments.get(match[1])) if match[1] else _LITERAL[match[0]], template)


def _text(value: Any) -> str:
    """Return a string as it is, null as empty, and any other value as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else dump(value).decode()


def _violations(
    template: str, element: str, arguments: Mapping[str, Any], names: Sequence[str], after_dashes: bool
) -> list[Violation]:
    violations = [
        Violation(pointer_of([name]), "command.null", "holds the null character")
        for name in names
        if "\0" in _text(arguments.get(name))
    ]
    open_ended = bool(names) and template.startswith("{") and not template.startswith("{{") and not after_dashes
    if open_ended and element.startswith("-"):
        violations.append(Violation(pointer_of(names[:1]), "command.option", "would be taken for an option"))
    if _size(element) > MAX_ELEMENT_BYTES:
        violations.append(Violation(pointer_of(names[:1]), "command.length", "is too long for a command"))
    return violations


def _size(element: str) -> int:
    return len(element.encode("utf-8", "surrogatepass"))
