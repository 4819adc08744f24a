"""ResolveTool: resolves a tool reference and a version constraint to one version."""

from __future__ import annotations

from libs.common.runtime.clock import Clock
from libs.common.tool_names import ToolName
from services.registry.domain.catalog.resolve import resolve
from services.registry.domain.errors import tool_not_found
from services.registry.domain.model import ToolVersion
from services.registry.domain.ports import Catalogue


async def resolve_tool(reference: str, constraint: str, *, catalogue: Catalogue, clock: Clock) -> ToolVersion:
    """Return the version that the reference resolves to now, with its manifest."""
    asked = ToolName.parse(reference)
    tool = await catalogue.tool(asked)
    if tool is None:
        raise tool_not_found(asked)
    head = resolve(tool.name, await catalogue.heads([tool.name]), constraint, clock.now())
    [version] = await catalogue.with_manifests([head])
    return version
