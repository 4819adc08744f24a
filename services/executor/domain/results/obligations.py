"""What a decision binds the executor to: what it cannot keep refuses the call, and the rest changes what the caller gets to see."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from libs.common.json.json_pointer import entries, escaped, is_whole, steps_of
from libs.common.redaction.scanner import UNEXAMINED, Scanner
from services.executor.domain import errors
from services.executor.domain.model import Decision, Obligation
from services.executor.domain.tool import Mutation, Tool

# By strength, as tool manifests order them.
_TIERS = {"in_process": 1, "process": 2, "kernel": 3, "machine": 4}
_POINTER = re.compile(r"(/([^~/]|~[01])*)+")
REDACT_PII = "redact_pii"
# What changes a result; the others are about the run.
_ON_RESULTS = frozenset({"redact_fields", "cap_rows", REDACT_PII})
DRY_RUN = "dry_run"
"""Demands that this very call was previewed."""


@dataclass(frozen=True, slots=True)
class BoundResult:
    """A result as the caller may see it, and the places where it differs from what the tool returned."""

    value: Any
    changed: tuple[str, ...] = ()


def with_required_preview(decision: Decision, tool: Tool) -> Decision:
    """Return the decision with the dry_run obligation if the tool is irreversible: such calls must be previewed first."""
    if tool.mutation is not Mutation.WRITE_IRREVERSIBLE or demands_preview(decision):
        return decision
    return replace(decision, obligations=(*decision.obligations, Obligation(DRY_RUN)))


def demands_preview(decision: Decision) -> bool:
    """Say whether this very call must have been previewed."""
    return any(each.kind == DRY_RUN for each in decision.obligations)


def unmet_kinds(obligations: Iterable[Obligation], tool: Tool, sandbox: str) -> list[str]:
    """Return the kinds that cannot be kept for a call that would run in this sandbox. A kind that is not known here is one."""
    return [each.kind for each in obligations if not _can_keep(each, tool, sandbox)]


def affect_results(obligations: Iterable[Obligation]) -> bool:
    """Say whether any of them may change a result."""
    return any(each.kind in _ON_RESULTS for each in obligations)


def apply_obligations(value: Any, obligations: Sequence[Obligation], scanner: Scanner | None = None) -> BoundResult:
    """Return the result with fields removed, lists cut and personal matter removed as demanded. The value given is not changed. Raises
    SANITIZATION_FAILED when all of it had to be examined, and could not be."""
    changed: dict[str, None] = {}
    for each in obligations:
        if each.kind == "redact_fields":
            for pointer in each.values:
                value = _without(value, steps_of(pointer), "", changed)
        elif each.kind == "cap_rows":
            value = _cut(value, int(each.values[0]), "", changed)
    if any(each.kind == REDACT_PII for each in obligations):
        # Last: what is gone already need not be examined.
        value = _without_personal(value, scanner, changed)
    return BoundResult(value, tuple(changed))


def _can_keep(obligation: Obligation, tool: Tool, sandbox: str) -> bool:
    values = obligation.values
    if obligation.kind == "redact_fields":
        return bool(values) and all(_POINTER.fullmatch(pointer) for pointer in values)
    if obligation.kind == "cap_rows":
        return len(values) == 1 and is_whole(values[0])
    if obligation.kind == "sandbox_tier":
        return len(values) == 1 and is_whole(values[0]) and int(values[0]) <= _TIERS.get(sandbox.partition("/")[0], 0)
    if obligation.kind == REDACT_PII:
        return not values
    return obligation.kind == DRY_RUN and tool.dry_run


def _without(value: Any, steps: Sequence[str], place: str, changed: dict[str, None]) -> Any:
    """Return a value without what the steps lead to. An entry of a list becomes null, so that the others keep their places."""
    step, rest = steps[0], steps[1:]
    names = list(entries(value, step))
    if not names:
        return value
    copied = dict(value) if isinstance(value, dict) else list(value)
    for name in names:
        there = f"{place}/{escaped(str(name))}"
        if rest:
            copied[name] = _without(copied[name], rest, there, changed)
            continue
        changed[there] = None
        if isinstance(copied, dict):
            del copied[name]
        else:
            copied[name] = None
    return copied


def _cut(value: Any, rows: int, place: str, changed: dict[str, None]) -> Any:
    """Return a value in which no list has more entries, unless it lies within a row itself."""
    if isinstance(value, list):
        if len(value) <= rows:
            return value
        changed[place] = None
        return value[:rows]
    if isinstance(value, dict):
        return {name: _cut(each, rows, f"{place}/{escaped(name)}", changed) for name, each in value.items()}
    return value


def _without_personal(value: Any, scanner: Scanner | None, changed: dict[str, None]) -> Any:
    """Return a value without what is personal or secret by its name or its form. All of it is examined, or nobody gets it."""
    if scanner is None:
        raise errors.sanitization_failed()
    try:
        redacted = scanner.value(value)
    except Exception as cause:
        # Whatever the scanner stumbled over: what it did not see to its end may hold anything.
        raise errors.sanitization_failed() from cause
    if any(finding.kind == UNEXAMINED for finding in redacted.findings):
        raise errors.sanitization_failed()
    changed.update((finding.pointer, None) for finding in redacted.findings)
    return redacted.value
