"""Compares the effects of a run with those that the tool's manifest declares. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from libs.common.json.globs import ANY, matches
from services.executor.domain.tool import Effect, Mutation, Tool

# The resources that a sandbox observes itself. Others, such as an order in a database, can only be reported.
SEEN_BY_SANDBOXES = ("file:",)
_PLACEHOLDER = re.compile(r"\{[^{}/]*\}")
_KIND = re.compile(r"([a-z][a-z0-9_-]{0,31})[:/]")
_MAX_KINDS = 8


def merge_effects(effects: Iterable[Effect]) -> tuple[Effect, ...]:
    """Return each effect once, in order; an observed effect replaces the same reported one."""
    unique = tuple(dict.fromkeys(effects))
    observed = {(effect.resource, effect.operation) for effect in unique if effect.observed}
    return tuple(effect for effect in unique if effect.observed or (effect.resource, effect.operation) not in observed)


def reported_elsewhere(effects: Iterable[Effect]) -> tuple[Effect, ...]:
    """Return the reported effects on resources that no sandbox holds. They happened whatever becomes of the run."""
    merged = merge_effects(effects)
    return tuple(each for each in merged if not each.observed and not each.resource.startswith(SEEN_BY_SANDBOXES))


def find_undeclared(tool: Tool, effects: Iterable[Effect]) -> list[Effect]:
    """Return the effects that violate the manifest, observed and reported ones alike.

    These are all effects of a read-only tool, undeclared effects of a writer, and reported file changes that the
    sandbox did not observe.
    """
    merged = merge_effects(effects)
    if not merged:
        return []
    if tool.mutation is Mutation.READ_ONLY:
        return list(merged)
    observed = {effect.resource for effect in merged if effect.observed}
    declared = [(effect.operation, _pattern(effect.resource)) for effect in tool.effects]
    return [effect for effect in merged if not _declared(effect, declared) or _unobserved(effect, observed)]


def _declared(effect: Effect, declared: list[tuple[str, str]]) -> bool:
    return any(operation == effect.operation and matches(to, effect.resource) for operation, to in declared)


def _unobserved(effect: Effect, observed: set[str]) -> bool:
    """Return whether a sandbox should have observed the resource and did not. Any observed operation on it counts."""
    return not effect.observed and effect.resource.startswith(SEEN_BY_SANDBOXES) and effect.resource not in observed


def _pattern(resource: str) -> str:
    """Replace placeholders by wildcards.

    They are not filled from the arguments: a caller that writes `./a` for `a` could otherwise cause a quarantine.
    """
    return _PLACEHOLDER.sub(ANY, resource)


def quarantine_reason(broken: Iterable[Effect], invocation_id: str) -> str:
    """Return the reason of a quarantine. It names kinds, and no resources: other callers read it too."""
    counted = Counter(f"{effect.operation} {_kind(effect.resource)}" for effect in broken)
    kinds = ", ".join(f"{kind} ({times})" for kind, times in counted.most_common(_MAX_KINDS))
    return f"undeclared side effects: {kinds}; observed in invocation {invocation_id}"


def _kind(resource: str) -> str:
    match = _KIND.match(resource)
    return match[1] if match is not None else "something"
