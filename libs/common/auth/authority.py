"""What a token allows: when one is a part of another (`exceeded`), and what it allows of one call (`not_covered`). Pure.

Both err on the side of refusal. Whatever `not_covered` lets a child do, it lets the parent do, if `exceeded` found nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from libs.common.errors import Reason, Violation
from libs.common.json.globs import covers, matches
from libs.common.semver import Constraint, Version, union
from libs.common.tool_names import ToolName, grant_covers, grant_within

if TYPE_CHECKING:
    from libs.common.auth.identity import Identity

USER, AGENT, INVOCATION = "user", "agent", "invocation"
# What each tier may be made into. Nothing comes of an invocation's token.
_CHILDREN = {USER: {AGENT, INVOCATION}, AGENT: {AGENT, INVOCATION}, INVOCATION: frozenset[str]()}
# A part of a resource's name that another reader may take for a way upwards, or for another character.
_EVASIVE = re.compile(r"(?:^|[/\\:])\.{1,2}(?:[/\\]|$)|%2[ef]|%5c|%25|[\x00-\x1f\x7f]", re.IGNORECASE)

# What is refused when a bound token names another session, and in which words.
SESSION = "session_id"
OTHER_SESSION = "The token is bound to another session."

Satisfies: TypeAlias = Callable[[bytes, Any], str | None]
"""Holds arguments against a JSON Schema: None if they satisfy it, else the JSON pointer of what does not."""


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


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a token does not cover a call. The path leads into the arguments, or is empty."""

    reason: Reason
    path: str
    message: str


def exceeded(child: Authority, parent: Authority) -> list[Violation]:
    """Return every dimension in which the child is not a part of the parent; what cannot be proven is exceeded."""
    return [
        *_tools_exceeded(child, parent),
        *_resources_exceeded(child, parent),
        *_budget_exceeded(child.budget, parent.budget),
        *(_violation(path, message) for holds, path, message in _bounds(child, parent) if not holds),
    ]


def not_covered(
    identity: Identity,
    tool: ToolName,
    version: Version,
    *,
    arguments: Any | None,
    resources: Sequence[str],
    closed_world: bool,
    satisfies: Satisfies,
) -> Refusal | None:
    """Return why the token does not cover this call, or None if it does.

    `resources` are those that the arguments name, as `kind:value`. While the arguments are not known (None), constraints on them and on
    resources are left open: whoever knows them asks again.
    """
    if not granted(identity.tools, tool, version):
        return Refusal(Reason.TOOL_NOT_IN_TOKEN, "", f"The token does not grant {tool.qualified} at version {version}.")
    if arguments is None:
        return None
    return _resources_refused(identity.resources, resources, closed_world) or _arguments_refused(
        identity.argument_constraints, tool, arguments, satisfies
    )


def bounds_arguments(identity: Identity, tool: ToolName) -> bool:
    """Say whether the token covers a call of this tool only with some arguments, so that they must be known."""
    named = any(grant_covers(constraint.tool, tool) for constraint in identity.argument_constraints)
    return named or bool(identity.resources)


def outside_session(identity: Identity, session_id: str) -> bool:
    """Say whether a call names another session than the one that the token is bound to. Who names none means that one."""
    return identity.session_id not in ("", session_id) and session_id != ""


def granted(grants: Iterable[Grant], tool: ToolName, version: Version) -> bool:
    """Say whether one of the grants names the tool at this version. An empty constraint means any, pre-releases included."""
    return any(
        grant_covers(grant.tool, tool)
        and (not grant.version_constraint or Constraint.parse(grant.version_constraint).accepts(version))
        for grant in grants
    )


def resource_allowed(patterns: Iterable[str], resource: str) -> bool:
    """Say whether a resource is one of those meant. A name that could mean another place than it shows never is."""
    return not _EVASIVE.search(resource) and any(matches(pattern, resource) for pattern in patterns)


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
    # An agent never becomes the subject itself again, and one token of one call stays with whoever made it.
    yield bool(child.agent) or not parent.agent, "agent", "must name who acts"
    yield child.tier != INVOCATION or child.agent == parent.agent, "agent", "must be the parent's"


def _tools_exceeded(child: Authority, parent: Authority) -> Iterator[Violation]:
    for index, grant in enumerate(child.tools):
        named = [of.version_constraint for of in parent.tools if grant_within(grant.tool, of.tool)]
        if not named:
            yield _violation(f"tools[{index}].tool", "the parent does not grant all that it matches")
        elif not _versions_within(grant.version_constraint, named):
            yield _violation(f"tools[{index}].version_constraint", "the parent does not grant all of these versions")


def _versions_within(child: str, parents: Sequence[str]) -> bool:
    if "" in parents:
        return True
    # What the parent grants in several parts it may pass on as one.
    return child != "" and Constraint.parse(child).within(union(Constraint.parse(text) for text in parents))


def _resources_exceeded(child: Authority, parent: Authority) -> Iterator[Violation]:
    if not parent.resources:
        return
    if not child.resources:
        yield _violation("resource_constraints", "the parent is confined, so the child must be")
    for index, pattern in enumerate(child.resources):
        if not any(covers(outer, pattern) for outer in parent.resources):
            yield _violation(f"resource_constraints[{index}]", "the parent is confined to less than it matches")


def _budget_exceeded(child: Budget, parent: Budget) -> Iterator[Violation]:
    for name in ("calls", "cost_micros", "running_ms"):
        spent, bound = getattr(child, name), getattr(parent, name)
        if bound is not None and (spent is None or spent > bound):
            yield _violation(f"budget.{name}", "must not be above the parent's")


def _resources_refused(patterns: Sequence[str], resources: Sequence[str], closed_world: bool) -> Refusal | None:
    if not patterns:
        return None
    if not resources and not closed_world:
        message = "The token is confined to resources, and the call does not say which ones it reaches."
        return Refusal(Reason.AUTHORITY_EXCEEDED, "", message)
    if all(resource_allowed(patterns, resource) for resource in resources):
        return None
    return Refusal(Reason.AUTHORITY_EXCEEDED, "", "The call names a resource that the token is not for.")


def _arguments_refused(
    constraints: Sequence[ArgumentConstraint], tool: ToolName, arguments: Any, satisfies: Satisfies
) -> Refusal | None:
    for constraint in constraints:
        if grant_covers(constraint.tool, tool):
            path = satisfies(constraint.schema, arguments)
            if path is not None:
                message = "The arguments do not satisfy what the token demands of them."
                return Refusal(Reason.AUTHORITY_EXCEEDED, path, message)
    return None


def _violation(path: str, message: str) -> Violation:
    return Violation(path, "authority.exceeded", message)
