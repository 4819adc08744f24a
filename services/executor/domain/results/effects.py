"""Effects: what a run changed, held against what its tool's manifest declares. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from libs.common.json.globs import ANY, matches
from services.executor.domain.tool import Effect, Mutation, Tool

# What a sandbox sees for itself. Whatever lies elsewhere, such as an order in somebody's books, can only be reported.
SEEN_BY_SANDBOXES = ("file:",)
_PLACEHOLDER = re.compile(r"\{[^{}/]*\}")
_KIND = re.compile(r"([a-z][a-z0-9_-]{0,31})[:/]")
_KINDS_TOLD = 8


def merge_effects(effects: Iterable[Effect]) -> tuple[Effect, ...]:
    """Return each effect once, in order; what was seen stands for what was also reported."""
    told = tuple(dict.fromkeys(effects))
    seen = {(effect.resource, effect.operation) for effect in told if effect.observed}
    return tuple(effect for effect in told if effect.observed or (effect.resource, effect.operation) not in seen)


def find_undeclared(tool: Tool, effects: Iterable[Effect]) -> list[Effect]:
    """Return the effects that break the tool's word: every one of a tool that only reads, whatever the manifest of a writer does not
    declare, and what a tool says it did to files that did not change. Seen and reported effects count alike."""
    told = tuple(effects)
    if not told:
        return []
    if tool.mutation is Mutation.READ_ONLY:
        return list(merge_effects(told))
    seen = {effect.resource for effect in told if effect.observed}
    declared = [(effect.operation, _pattern(effect.resource)) for effect in tool.effects]
    return [effect for effect in merge_effects(told) if not _declared(effect, declared) or _imagined(effect, seen)]


def _declared(effect: Effect, declared: list[tuple[str, str]]) -> bool:
    return any(operation == effect.operation and matches(to, effect.resource) for operation, to in declared)


def _imagined(effect: Effect, seen: set[str]) -> bool:
    """Say whether a sandbox would have seen it and did not. How it changed is the sandbox's word anyway, so any change will do."""
    return not effect.observed and effect.resource.startswith(SEEN_BY_SANDBOXES) and effect.resource not in seen


def _pattern(resource: str) -> str:
    """A placeholder stands for anything. It is not filled from the arguments: a caller who writes `./a` for `a` would then put an honest
    tool into quarantine."""
    return _PLACEHOLDER.sub(ANY, resource)


def quarantine_reason(broken: Iterable[Effect], invocation_id: str) -> str:
    """Return why a tool is taken out of use, for whoever is refused from then on. It names kinds and no resources: those may say more
    about one caller than another may know."""
    counted = Counter(f"{effect.operation} {_kind(effect.resource)}" for effect in broken)
    told = ", ".join(f"{what} ({times})" for what, times in counted.most_common(_KINDS_TOLD))
    return f"changed what it does not declare: {told}; seen in invocation {invocation_id}"


def _kind(resource: str) -> str:
    found = _KIND.match(resource)
    return found[1] if found is not None else "something"
