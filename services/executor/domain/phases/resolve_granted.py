"""Resolves the tool of a call, for a token that names it."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache

from libs.common.auth.coverage import granted
from libs.common.errors import MeshError, Reason
from libs.common.semver import Version
from libs.common.tool_names import ToolName, grant_covers, split_version_name
from services.executor.domain import errors
from services.executor.domain.model import Request
from services.executor.domain.ports import ToolView
from services.executor.domain.tool import Tool

_MAX_PARSED = 10_000
# What a call asks for that leaves the version to the mesh.
_ANY_VERSION = frozenset({"", "latest", "*"})


def resolve_granted(tools: ToolView, request: Request) -> Tool:
    """Return the tool of a call. Raises TOOL_NOT_IN_TOKEN if the token does not name it.

    A call without a version gets the highest version that the token grants. The error is the same whether such a tool
    exists or not, so a token that does not name it cannot find out. Of the call, only the name and version of its tool
    are read.
    """
    grants = request.caller.grants
    try:
        tool = tools.resolve(request.tool, request.version)
    except MeshError as error:
        within = _resolve_within(tools, request)
        if within is not None:
            return within
        # A stale catalog refuses every tool alike.
        if error.reason is Reason.SERVICE_UNAVAILABLE or any(_names(grant.tool, request.tool) for grant in grants):
            raise
        raise errors.tool_not_granted(request.tool) from None
    if granted(grants, *_parsed(tool.name)):
        return tool
    within = _resolve_within(tools, request)
    if within is None:
        raise errors.tool_not_granted(request.tool)
    return within


def _resolve_within(tools: ToolView, request: Request) -> Tool | None:
    """Return the highest version that a grant allows, for a call that asks for none; None if there is none."""
    if request.version not in _ANY_VERSION:
        return None
    found = list[Tool]()
    for grant in request.caller.grants:
        if grant.version_constraint and _names(grant.tool, request.tool):
            with suppress(MeshError):
                found.append(tools.resolve(request.tool, grant.version_constraint))
    allowed = [tool for tool in found if granted(request.caller.grants, *_parsed(tool.name))]
    return max(allowed, key=lambda tool: _parsed(tool.name)[1], default=None)


def _names(pattern: str, reference: str) -> bool:
    try:
        return grant_covers(pattern, ToolName.parse(reference))
    except MeshError:
        # No tool can have this name, so saying that it does not exist tells nothing.
        return True


@lru_cache(maxsize=_MAX_PARSED)
def _parsed(name: str) -> tuple[ToolName, Version]:
    tool, version = split_version_name(name)
    return tool, Version.parse(version)
