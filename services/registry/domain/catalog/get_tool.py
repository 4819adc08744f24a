"""GetTool: one tool and all its versions."""

from __future__ import annotations

from collections.abc import Sequence

from libs.common.tool_names import ToolName
from services.registry.domain.catalog.page_size import count_fitting
from services.registry.domain.errors import tool_not_found
from services.registry.domain.model import Tool, ToolVersion
from services.registry.domain.ports import Catalogue


async def get_tool(reference: str, *, catalogue: Catalogue) -> tuple[Tool, Sequence[ToolVersion]]:
    """Return the tool and its versions, the highest first. Old versions that exceed the response size come without
    their manifests; ResolveTool returns those by exact version."""
    asked = ToolName.parse(reference)
    tool = await catalogue.tool(asked)
    if tool is None:
        raise tool_not_found(asked)
    heads = sorted(await catalogue.heads([tool.name]), key=lambda head: head.version, reverse=True)
    whole = count_fitting(head.size for head in heads)
    versions = list(await catalogue.with_manifests(heads[:whole]))
    return tool, versions + [ToolVersion(head, None) for head in heads[whole:]]
