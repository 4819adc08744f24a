"""Decides whether a token covers one call: its tool, resources, arguments and session. Pure; refuses when in doubt."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from libs.common.auth.authority import ArgumentConstraint, Grant
from libs.common.auth.identity import Identity
from libs.common.errors import Reason
from libs.common.json.globs import matches
from libs.common.semver import Constraint, Version
from libs.common.tool_names import ToolName, grant_covers

# A segment that another reader may take for a parent folder or for another character.
_EVASIVE = re.compile(r"(?:^|[/\\:])\.{1,2}(?:[/\\]|$)|%2[ef]|%5c|%25|[\x00-\x1f\x7f]", re.IGNORECASE)

# The refusal of a call in another session than the token's.
SESSION = "session_id"
OTHER_SESSION = "The token is bound to another session."

Satisfies: TypeAlias = Callable[[Sequence[bytes], Any], str | None]
"""Checks arguments against JSON Schemas: None if they satisfy all, else the JSON Pointer of the first violation."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a token does not cover a call. The path points into the arguments, or is empty."""

    reason: Reason
    path: str
    message: str


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

    `resources` are those that the arguments name, as `kind:value`. While the arguments are unknown (None), constraints
    on arguments and resources are not checked; the check is repeated once they are known.
    """
    if not granted(identity.tools, tool, version):
        return Refusal(Reason.TOOL_NOT_IN_TOKEN, "", f"The token does not grant {tool.qualified} at version {version}.")
    if arguments is None:
        return None
    return _resources_refused(identity.resources, resources, closed_world) or _arguments_refused(
        identity.argument_constraints, tool, arguments, satisfies
    )


def bounds_arguments(identity: Identity, tool: ToolName) -> bool:
    """Return whether the token restricts the arguments of this tool, so that they must be known."""
    named = any(grant_covers(constraint.tool, tool) for constraint in identity.argument_constraints)
    return named or bool(identity.resources)


def outside_session(identity: Identity, session_id: str) -> bool:
    """Return whether a call names another session than the token's. A call without a session means the token's."""
    return identity.session_id not in ("", session_id) and session_id != ""


def granted(grants: Iterable[Grant], tool: ToolName, version: Version) -> bool:
    """Return whether a grant names the tool at this version. An empty constraint allows all, pre-releases included."""
    return any(
        grant_covers(grant.tool, tool)
        and (not grant.version_constraint or Constraint.parse(grant.version_constraint).accepts(version))
        for grant in grants
    )


def resource_allowed(patterns: Iterable[str], resource: str) -> bool:
    """Return whether a pattern matches the resource. Evasive names never match."""
    return not _EVASIVE.search(resource) and any(matches(pattern, resource) for pattern in patterns)


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
    schemas = [constraint.schema for constraint in constraints if grant_covers(constraint.tool, tool)]
    path = satisfies(schemas, arguments) if schemas else None
    if path is None:
        return None
    message = "The arguments do not satisfy what the token demands of them, or are too large to check."
    return Refusal(Reason.AUTHORITY_EXCEEDED, path, message)
