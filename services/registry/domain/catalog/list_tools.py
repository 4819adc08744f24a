"""ListTools: pages of tools, sorted by name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from libs.common import page_tokens
from libs.common.runtime.clock import Clock
from libs.common.tool_names import ToolName
from services.registry.domain.caller import Caller
from services.registry.domain.catalog.page_size import count_fitting
from services.registry.domain.catalog.resolve import latest
from services.registry.domain.errors import page_token_invalid
from services.registry.domain.model import Tool, ToolVersion, Usability, VersionHead
from services.registry.domain.ports import CallPolicy, Catalogue

DEFAULT_PAGE = 100


@dataclass(frozen=True, slots=True)
class Selection:
    """The filters of a listing."""

    namespace: str = ""
    tags: tuple[str, ...] = ()
    usable_only: bool = False
    caller: Caller | None = None
    """Of a listing of usable tools: each is listed with the latest version that the token grants."""

    @property
    def query(self) -> list[object]:
        """The query that a page token is bound to."""
        return ["ListTools", self.namespace, sorted(set(self.tags)), self.usable_only]


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool and its `latest` version; None when no version may run."""

    tool: Tool
    version: ToolVersion | None


@dataclass(frozen=True, slots=True)
class ToolPage:
    """One page of tools. An empty token marks the last page."""

    tools: Sequence[ListedTool]
    next_token: str


async def list_tools(
    selection: Selection, page_size: int, page_token: str, *, catalogue: Catalogue, clock: Clock
) -> ToolPage:
    """Return the page after a token. A page holds fewer tools than requested when their manifests are large."""
    limit = page_size or DEFAULT_PAGE
    # Read one more than requested, to know whether there is another page.
    rows = await catalogue.tools(
        namespace=selection.namespace, tags=selection.tags, after=_cursor(selection, page_token), limit=limit + 1
    )
    tools = rows[:limit]
    heads = await _latest_heads(tools, selection.caller, catalogue, clock)
    shown = tools[: count_fitting(head.size if head else 0 for head in heads)]
    versions = await catalogue.with_manifests([head for head in heads[: len(shown)] if head])
    by_tool = {version.head.tool: version for version in versions}
    listed = [ListedTool(tool, by_tool.get(tool.name)) for tool in shown]
    more = len(shown) < len(rows)
    return ToolPage(listed, page_tokens.encode(selection.query, [shown[-1].name.qualified]) if more else "")


async def only_usable(page: ToolPage, policy: CallPolicy) -> ToolPage:
    """Return the page without tools that the caller may not use and without tools that have no runnable version."""
    listed = [(item, item.version.head) for item in page.tools if item.version is not None]
    answers = await policy.usability_of([head for _, head in listed]) if listed else ()
    return replace(
        page,
        tools=[item for (item, _), answer in zip(listed, answers, strict=True) if answer is not Usability.FORBIDDEN],
    )


async def _latest_heads(
    tools: Sequence[Tool], caller: Caller | None, catalogue: Catalogue, clock: Clock
) -> list[VersionHead | None]:
    by_tool: dict[ToolName, list[VersionHead]] = defaultdict(list)
    for head in await catalogue.heads([tool.name for tool in tools]):
        if caller is None or caller.is_granted(head):
            by_tool[head.tool].append(head)
    now = clock.now()
    return [latest(by_tool[tool.name], now) for tool in tools]


def _cursor(selection: Selection, page_token: str) -> str:
    cursor = page_tokens.decode(selection.query, page_token)
    if cursor is None:
        return ""
    if len(cursor) != 1 or not isinstance(cursor[0], str) or "\0" in cursor[0]:
        raise page_token_invalid()
    return cursor[0]
