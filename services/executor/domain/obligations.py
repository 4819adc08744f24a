"""What a decision binds the executor to: what it cannot keep refuses the call, and the rest changes what the caller gets to see."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from services.executor.domain.model import Obligation

# By strength, as tool manifests order them.
_TIERS = {"in_process": 1, "process": 2, "kernel": 3, "machine": 4}
_POINTER = re.compile(r"(/([^~/]|~[01])*)+")
_EVERY = "*"


@dataclass(frozen=True, slots=True)
class Fulfilled:
    """A result as the caller may see it, and the places where it differs from what the tool returned."""

    value: Any
    changed: tuple[str, ...] = ()


def unmet(obligations: Iterable[Obligation], sandbox: str) -> list[str]:
    """Return the kinds that cannot be kept for a call that would run in this sandbox. A kind that is not known here is one."""
    return [each.kind for each in obligations if not _can_keep(each, sandbox)]


def fulfil(value: Any, obligations: Sequence[Obligation]) -> Fulfilled:
    """Return the result with fields removed and lists cut as demanded. The value given is not changed."""
    changed: dict[str, None] = {}
    for each in obligations:
        if each.kind == "redact_fields":
            for pointer in each.values:
                value = _without(value, _steps(pointer), "", changed)
        elif each.kind == "cap_rows":
            value = _cut(value, int(each.values[0]), "", changed)
    return Fulfilled(value, tuple(changed))


def _can_keep(obligation: Obligation, sandbox: str) -> bool:
    values = obligation.values
    if obligation.kind == "redact_fields":
        return bool(values) and all(_POINTER.fullmatch(pointer) for pointer in values)
    if obligation.kind == "cap_rows":
        return len(values) == 1 and _is_whole(values[0])
    if obligation.kind == "sandbox_tier":
        return len(values) == 1 and _is_whole(values[0]) and int(values[0]) <= _TIERS.get(sandbox, 0)
    # A dry run among them: no tool can make one yet.
    return False


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 9


def _steps(pointer: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _without(value: Any, steps: Sequence[str], place: str, changed: dict[str, None]) -> Any:
    """Return a value without what the steps lead to. An entry of a list becomes null, so that the others keep their places."""
    step, rest = steps[0], steps[1:]
    names = list(_entries(value, step))
    if not names:
        return value
    copied = dict(value) if isinstance(value, dict) else list(value)
    for name in names:
        there = f"{place}/{_escaped(str(name))}"
        if rest:
            copied[name] = _without(copied[name], rest, there, changed)
            continue
        changed[there] = None
        if isinstance(copied, dict):
            del copied[name]
        else:
            copied[name] = None
    return copied


def _entries(value: Any, step: str) -> Iterator[Any]:
    """The keys or indices that a step means. A key named * is among those that * means."""
    if isinstance(value, dict):
        yield from list(value) if step == _EVERY else [step] if step in value else []
    elif isinstance(value, list):
        if step == _EVERY:
            yield from range(len(value))
        elif _is_whole(step) and int(step) < len(value):
            yield int(step)


def _cut(value: Any, rows: int, place: str, changed: dict[str, None]) -> Any:
    """Return a value in which no list has more entries, unless it lies within a row itself."""
    if isinstance(value, list):
        if len(value) <= rows:
            return value
        changed[place] = None
        return value[:rows]
    if isinstance(value, dict):
        return {name: _cut(each, rows, f"{place}/{_escaped(name)}", changed) for name, each in value.items()}
    return value


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
