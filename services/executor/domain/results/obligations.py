"""Applies the obligations of a decision. One that cannot be met refuses the call; the others redact the result."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from libs.common.json.json_pointer import entries, escaped, is_whole, steps_of
from libs.common.redaction.scanner import UNEXAMINED, Scanner
from services.executor.domain import errors
from services.executor.domain.model import Decision, Obligation
from services.executor.domain.tool import Tool

# By strength, as tool manifests order them.
_TIERS = {"in_process": 1, "process": 2, "kernel": 3, "machine": 4}
_POINTER = re.compile(r"(/([^~/]|~[01])*)+")
REDACT_PII = "redact_pii"
# The obligations that change a result; the others concern the run.
_ON_RESULTS = frozenset({"redact_fields", "cap_rows", REDACT_PII})
DRY_RUN = "dry_run"
"""Requires that this very call was previewed."""
MAX_PRIORITY = "max_priority"
"""Allows the caller this priority in the queue, which may be above that of the tool."""


@dataclass(frozen=True, slots=True)
class BoundResult:
    """A redacted result, and the JSON Pointers of its changes."""

    value: Any
    changed: tuple[str, ...] = ()


def with_required_preview(decision: Decision, tool: Tool) -> Decision:
    """Return the decision with the dry_run obligation if every call of the tool is previewed first."""
    if not tool.requires_preview or demands_preview(decision):
        return decision
    return replace(decision, obligations=(*decision.obligations, Obligation(DRY_RUN)))


def demands_preview(decision: Decision) -> bool:
    """Return whether this very call must have been previewed."""
    return any(each.kind == DRY_RUN for each in decision.obligations)


def allowed_priority(decision: Decision, tool: Tool) -> int:
    """Return the highest priority that a caller may ask for: that of the tool, unless policy names another."""
    named = [int(each.values[0]) for each in decision.obligations if each.kind == MAX_PRIORITY]
    return min(named, default=tool.placement.priority)


def unmet_kinds(obligations: Iterable[Obligation], tool: Tool, sandbox: str) -> list[str]:
    """Return the kinds of obligation that cannot be met in this sandbox, unknown kinds included."""
    return [each.kind for each in obligations if not _can_keep(each, tool, sandbox)]


def affect_results(obligations: Iterable[Obligation]) -> bool:
    """Return whether any of them may change a result."""
    return any(each.kind in _ON_RESULTS for each in obligations)


def apply_obligations(value: Any, obligations: Sequence[Obligation], scanner: Scanner | None = None) -> BoundResult:
    """Return the result with fields removed, lists truncated and personal data redacted. The given value is not
    modified.

    Raises SANITIZATION_FAILED when the scanner could not examine all of it.
    """
    changed: dict[str, None] = {}
    for each in obligations:
        if each.kind == "redact_fields":
            for pointer in each.values:
                value = _without(value, steps_of(pointer), "", changed)
        elif each.kind == "cap_rows":
            value = _cut(value, int(each.values[0]), "", changed)
    if any(each.kind == REDACT_PII for each in obligations):
        # Last: removed parts need no scan.
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
    if obligation.kind == MAX_PRIORITY:
        return len(values) == 1 and is_whole(values[0]) and 1 <= int(values[0]) <= 10
    if obligation.kind == REDACT_PII:
        return not values
    return obligation.kind == DRY_RUN and tool.dry_run


def _without(value: Any, steps: Sequence[str], place: str, changed: dict[str, None]) -> Any:
    """Remove what the steps lead to. An entry of a list becomes null, so that the others keep their index."""
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
    """Truncate every list to `rows` entries, except lists within a row."""
    if isinstance(value, list):
        if len(value) <= rows:
            return value
        changed[place] = None
        return value[:rows]
    if isinstance(value, dict):
        return {name: _cut(each, rows, f"{place}/{escaped(name)}", changed) for name, each in value.items()}
    return value


def _without_personal(value: Any, scanner: Scanner | None, changed: dict[str, None]) -> Any:
    """Redact personal data and secrets. The result is withheld unless all of it was examined."""
    if scanner is None:
        raise errors.sanitization_failed()
    try:
        redacted = scanner.value(value)
    except Exception as cause:
        # A value that the scanner could not finish may contain anything.
        raise errors.sanitization_failed() from cause
    if any(finding.kind == UNEXAMINED for finding in redacted.findings):
        raise errors.sanitization_failed()
    changed.update((finding.pointer, None) for finding in redacted.findings)
    return redacted.value
