"""ListTransitions: the history of a tool, newest first."""

from __future__ import annotations

from libs.common import page_tokens
from libs.common.tool_names import ToolName, split_version_name
from services.registry.domain.errors import page_token_invalid, tool_not_found
from services.registry.domain.lifecycle.transitions import TransitionPage
from services.registry.domain.ports import Catalogue, Histories

DEFAULT_PAGE = 100
_NEWEST = 2**63 - 1


async def list_transitions(
    reference: str, page_size: int, page_token: str, *, catalogue: Catalogue, histories: Histories
) -> TransitionPage:
    """Return a page of the history of a tool or of one version. Raises TOOL_NOT_FOUND and PAGE_TOKEN_INVALID."""
    name, version = split_version_name(reference) if "/versions/" in reference else (ToolName.parse(reference), "")
    tool = await catalogue.tool(name)
    if tool is None:
        raise tool_not_found(name)
    query = ["ListTransitions", tool.name.qualified, version]
    limit = page_size or DEFAULT_PAGE
    rows = await histories.transitions(tool.name, version, _before(query, page_token), limit + 1)
    shown = rows[:limit]
    more = len(rows) > limit
    return TransitionPage(shown, page_tokens.encode(query, [shown[-1].sequence]) if more else "")


def _before(query: list[str], page_token: str) -> int:
    cursor = page_tokens.decode(query, page_token)
    if cursor is None:
        return _NEWEST
    if len(cursor) != 1 or not isinstance(cursor[0], int) or isinstance(cursor[0], bool):
        raise page_token_invalid()
    return cursor[0]
