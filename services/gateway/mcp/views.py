"""Views: named selections of tools, each an MCP server of its own at `/mcp/<view>`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from libs.common.errors import MeshError, Reason
from libs.common.tool_names import ToolName

DEFAULT_TOKEN_BUDGET = 25_000
_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")
_SHOWN_NAME = "^[A-Za-z][A-Za-z0-9_]{0,63}$"
_TOOL_ID = re.compile(r"[a-z][a-z0-9_]{2,254}")
_JOINED = re.compile(r"([a-z][a-z0-9-]{1,62})__([a-z][a-z0-9_]{2,254})")

Text = Annotated[str, msgspec.Meta(max_length=2000)]
Budget = Annotated[int, msgspec.Meta(ge=1000, le=1_000_000)]


class Scan(NamedTuple):
    """One walk through the registry's list: a filter that the registry applies."""

    namespace: str
    tags: tuple[str, ...]


class ViewTool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One tool of a list, under a name of the view's own choice."""

    tool: str
    name: Annotated[str, msgspec.Meta(pattern=_SHOWN_NAME)] = ""


class View(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """A selection of tools, by namespace, tags or list, and the names that they have in it.

    A view selects and names; what a caller may use of it is decided by the caller's token and by policy.
    """

    namespace: Annotated[str, msgspec.Meta(pattern="^([a-z][a-z0-9-]{1,62})?$")] = ""
    tags: tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=64)], ...] = ()
    tools: tuple[ViewTool, ...] = ()
    title: Text = ""
    instructions: Text = ""
    token_budget: Budget = DEFAULT_TOKEN_BUDGET

    @cached_property
    def listed(self) -> Mapping[str, ToolName]:
        """The tools of a list by their names; empty for other views."""
        listed = [(entry, ToolName.parse(entry.tool)) for entry in self.tools]
        return {entry.name or tool.tool_id: tool for entry, tool in listed}

    @cached_property
    def _names(self) -> Mapping[ToolName, str]:
        return {tool: name for name, tool in self.listed.items()}

    @cached_property
    def scans(self) -> tuple[Scan, ...]:
        """The walks through the registry that meet every tool of the view."""
        if self.tools:
            return tuple(Scan(namespace, ()) for namespace in sorted({t.namespace for t in self.listed.values()}))
        return (Scan(self.namespace, self.tags),)

    def name_of(self, tool: ToolName) -> str:
        """Return the tool's name in this view; empty for a tool that is not in it. Tags are not looked at."""
        if self.tools:
            return self._names.get(tool, "")
        if self.namespace:
            return tool.tool_id if tool.namespace == self.namespace else ""
        return f"{tool.namespace}__{tool.tool_id}"

    def tool_of(self, name: str) -> ToolName:
        """Return the tool of a name; raises TOOL_NOT_FOUND for a name that the view cannot have."""
        if self.tools:
            tool = self.listed.get(name)
        elif self.namespace:
            tool = ToolName(self.namespace, name) if _TOOL_ID.fullmatch(name) else None
        else:
            # A namespace has no underscore, so the first two separate it from the id.
            joined = _JOINED.fullmatch(name)
            tool = ToolName(*joined.groups()) if joined else ToolName.parse(name)
        if tool is None:
            raise MeshError(Reason.TOOL_NOT_FOUND)
        return tool


Views = Mapping[str, View]
EVERYTHING = View()
"""The view at `/mcp`: every tool, under its namespace and id, as the client library names tools for models."""


def read_views(path: Path) -> Views:
    """Read the views of a JSON file, `{"views": {"<name>": {...}}}`. Raises ValueError for a file that is no such."""
    views = msgspec.json.decode(path.read_bytes(), type=_ViewsFile).views
    for name, view in views.items():
        if not _NAME.fullmatch(name):
            raise ValueError("the name of a view has lower-case letters, digits and hyphens")
        if bool(view.tools) + bool(view.namespace or view.tags) != 1:
            raise ValueError("a view has tools, or a namespace, tags or both")
        if len(view.listed) < len(view.tools):
            raise ValueError("two tools of a view have one name")
    return views


class _ViewsFile(msgspec.Struct, forbid_unknown_fields=True):
    views: dict[str, View]
