"""The authority of a token, and whether a derived token stays within its parent's. Pure.

Whatever cannot be proven to be within is exceeded. If `exceeded` finds nothing, every call that `coverage.not_covered`
allows the child is allowed for the parent too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from libs.common.errors import Violation
from libs.common.json.globs import ANY, covers
from libs.common.semver import Constraint, union
from libs.common.tool_names import grant_within, qualified_pattern

USER, AGENT, INVOCATION = "user", "agent", "invocation"
# What each tier may be made into. Nothing comes of an invocation's token.
_CHILDREN = {USER: {AGENT, INVOCATION}, AGENT: {AGENT, INVOCATION}, INVOCATION: frozenset[str]()}

# Patterns of a child times letters in the parent's patterns: what one comparison of two tokens may take.
MAX_COMPARED = 100_000
_TOO_MANY = "too many patterns to compare with those of the parent"


@dataclass(frozen=True, slots=True)
class Grant:
    """Which tools, at which versions, a token may call."""

    tool: str
    version_constraint: str = ""


@dataclass(frozen=True, slots=True)
class ArgumentConstraint:
    """What the arguments of some tools must satisfy beside the tools' own schemas."""

    tool: str
    schema: bytes
    """Canonical JSON, so that equal schemas are equal bytes."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What a token may spend in all; None means no bound."""

    calls: int | None = None
    cost_micros: int | None = None
    running_ms: int | None = None

    def __bool__(self) -> bool:
        return (self.calls, self.cost_micros, self.running_ms) != (None, None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """Everything about a token that its children must not exceed."""

    subject: str
    tier: str
    agent: str = ""
    tools: tuple[Grant, ...] = ()
    scopes: frozenset[str] = frozenset()
    resources: tuple[str, ...] = ()
    argument_constraints: tuple[ArgumentConstraint, ...] = ()
    budget: Budget = Budget()
    depth: int = 0
    audiences: tuple[str, ...] = ()
    not_before: float = 0.0
    expires_at: float = 0.0
    tenant: str = ""
    trust_level: int = 0
    groups: tuple[str, ...] = ()
    session_id: str = ""
    confirmation: str = ""


def exceeded(child: Authority, parent: Authority) -> list[Violation]:
    """Return every dimension in which the child is not a part of the parent; what cannot be proven is exceeded."""
    return [
        *_tools_exceeded(child, parent),
        *_resources_exceeded(child, parent),
        *_budget_exceeded(child.budget, parent.budget),
        *(_violation(path, message) for holds, path, message in _bounds(child, parent) if not holds),
    ]


def _bounds(child: Authority, parent: Authority) -> Iterator[tuple[bool, str, str]]:
    yield child.subject == parent.subject, "subject", "must be the parent's"
    yield child.tier in _CHILDREN.get(parent.tier, ()), "tier", "nothing of this tier comes of the parent's tier"
    yield child.scopes <= parent.scopes, "scopes", "the parent does not hold all of them"
    kept = set(child.argument_constraints).issuperset(parent.argument_constraints)
    yield kept, "argument_constraints", "those of the parent must stay"
    yield 0 <= child.depth < max(parent.depth, 0), "delegation_depth", "must be less than the parent's"
    # Without an audience there is no bound that a child could be held against.
    audiences = bool(child.audiences) and set(child.audiences) <= set(parent.audiences)
    yield audiences, "audiences", "the parent is not for all of them"
    yield child.expires_at <= parent.expires_at, "lifetime", "must not end after the parent"
    yield child.not_before >= parent.not_before, "not_before", "must not begin before the parent"
    yield child.tenant == parent.tenant, "tenant", "must be the parent's"
    yield child.trust_level <= parent.trust_level, "trust_level", "must not be above the parent's"
    yield set(child.groups) <= set(parent.groups), "groups", "the parent does not hold all of them"
    yield parent.session_id in ("", child.session_id), "session_id", "must be the parent's"
    yield bool(child.confirmation) or not parent.confirmation, "confirmation", "the parent's holder must prove a key"
    # An agent never becomes the subject itself again, and an invocation token stays with its maker.
    yield bool(child.agent) or not parent.agent, "agent", "must name who acts"
    yield child.tier != INVOCATION or child.agent == parent.agent, "agent", "must be the parent's"


def _tools_exceeded(child: Authority, parent: Authority) -> Iterator[Violation]:
    granted = _ParentGrants(parent.tools)
    if not granted.few_enough_for(len(child.tools)):
        yield _violation("tools", _TOO_MANY)
        return
    for index, grant in enumerate(child.tools):
        versions = granted.versions(grant.tool)
        if versions is None:
            yield _violation(f"tools[{index}].tool", "the parent does not grant all that it matches")
        elif versions and not (
            grant.version_constraint and Constraint.parse(grant.version_constraint).within(versions)
        ):
            yield _violation(f"tools[{index}].version_constraint", "the parent does not grant all of these versions")


class _ParentGrants:
    """The grants of a parent. Those without a wildcard are found by name, the others by comparing."""

    def __init__(self, grants: Sequence[Grant]) -> None:
        self._named: dict[str, list[Grant]] = {}
        self._patterns = [grant for grant in grants if ANY in grant.tool]
        self._known: dict[str, Constraint | Literal[""] | None] = {}
        for grant in grants:
            if ANY not in grant.tool:
                self._named.setdefault(qualified_pattern(grant.tool), []).append(grant)

    def few_enough_for(self, children: int) -> bool:
        letters = sum(len(grant.tool) + len(grant.version_constraint) for grant in self._patterns)
        return children * letters <= MAX_COMPARED

    def versions(self, tool: str) -> Constraint | Literal[""] | None:
        """Return the versions that are granted of all that a pattern matches: empty for all, None for none."""
        if tool not in self._known:
            self._known[tool] = self._find(tool)
        return self._known[tool]

    def _find(self, tool: str) -> Constraint | Literal[""] | None:
        named = self._named.get(qualified_pattern(tool), ())
        texts = {of.version_constraint for of in (*named, *(p for p in self._patterns if grant_within(tool, p.tool)))}
        if not texts or "" in texts:
            return "" if texts else None
        # What the parent grants in several parts it may pass on as one.
        return union(Constraint.parse(text) for text in sorted(texts))


def _resources_exceeded(child: Authority, parent: Authority) -> Iterator[Violation]:
    if not parent.resources:
        return
    if not child.resources:
        yield _violation("resource_constraints", "the parent is confined, so the child must be")
    same, patterns = set(parent.resources), [pattern for pattern in parent.resources if ANY in pattern]
    if len(child.resources) * sum(map(len, patterns)) > MAX_COMPARED:
        yield _violation("resource_constraints", _TOO_MANY)
        return
    for index, resource in enumerate(child.resources):
        if resource not in same and not any(covers(pattern, resource) for pattern in patterns):
            yield _violation(f"resource_constraints[{index}]", "the parent is confined to less than it matches")


def _budget_exceeded(child: Budget, parent: Budget) -> Iterator[Violation]:
    for name in ("calls", "cost_micros", "running_ms"):
        spent, bound = getattr(child, name), getattr(parent, name)
        if bound is not None and (spent is None or spent > bound):
            yield _violation(f"budget.{name}", "must not be above the parent's")


def _violation(path: str, message: str) -> Violation:
    return Violation(path, "authority.exceeded", message)
