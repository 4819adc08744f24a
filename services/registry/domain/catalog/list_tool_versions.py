"""ListToolVersions: pages of a tool's versions, highest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from libs.common import page_tokens
from libs.common.errors import MeshError
from libs.common.semver import Version
from libs.common.tool_names import ToolName
from services.registry.domain.errors import page_token_invalid, tool_not_found
from services.registry.domain.model import LifecycleState, ToolVersion
from services.registry.domain.ports import Catalogue

DEFAULT_PAGE = 100


@dataclass(frozen=True, slots=True)
class VersionPage:
    """One page of versions. An empty token marks the last page."""

    versions: Sequence[ToolVersion]
    next_token: str


async def list_tool_versions(
    reference: str, states: frozenset[LifecycleState], page_size: int, page_token: str, *, catalogue: Catalogue
) -> VersionPage:
    """Return the page after a token. The cursor is a version, not an offset, so versions that are registered between
    two calls do not shift the pages."""
    asked = ToolName.parse(reference)
    tool = await catalogue.tool(asked)
    if tool is None:
        raise tool_not_found(asked)
    query: list[object] = ["ListToolVersions", tool.name.qualified, sorted(states)]
    below = _cursor(query, page_token)
    heads = sorted(await catalogue.heads([tool.name]), key=lambda head: head.version, reverse=True)
    wanted = [
        head
        for head in heads
        if (not states or head.standing.state in states) and (below is None or head.version < below)
    ]
    shown = wanted[: page_size or DEFAULT_PAGE]
    more = len(shown) < len(wanted)
    token = page_tokens.encode(query, [str(shown[-1].version)]) if more else ""
    return VersionPage([ToolVersion(head, None) for head in shown], token)


def _cursor(query: list[object], page_token: str) -> Version | None:
    cursor = page_tokens.decode(query, page_token)
    if cursor is None:
        return None
    if len(cursor) != 1 or not isinstance(cursor[0], str):
        raise page_token_invalid()
    try:
        return Version.parse(cursor[0])
    except MeshError:
        raise page_token_invalid() from None
