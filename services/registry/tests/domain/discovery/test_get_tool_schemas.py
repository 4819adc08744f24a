"""GetToolSchemas: schemas that are dropped when the joined text exceeds the budget."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from libs.common.tool_names import ToolName
from services.registry.convert.manifest import manifest_of
from services.registry.domain.discovery.compile_surface import Tier
from services.registry.domain.discovery.get_tool_schemas import (
    SchemaRequest,
    UnloadedReason,
    UnloadedTool,
    get_tool_schemas,
)
from services.registry.domain.discovery.tokens import TokenCounter
from services.registry.domain.model import LifecycleState, Standing, Tool, ToolVersion, VersionHead
from services.registry.domain.trust.tool_trust import ToolTrust
from services.registry.tests.manifests import reader

NOW = datetime(2026, 6, 1, tzinfo=UTC)


class Shelf:
    """Has a version of every requested tool."""

    async def tool(self, name: ToolName) -> Tool:
        return Tool(name, name.namespace, "", (), "1.0.0", (), NOW, NOW)

    async def heads(self, names: Sequence[ToolName]) -> list[VersionHead]:
        standing = Standing(LifecycleState.AVAILABLE, NOW, 1)
        return [
            VersionHead(name, manifest_of(reader()).version, "sha256:0", 1, NOW, "operator", standing) for name in names
        ]

    async def with_manifests(self, heads: Sequence[VersionHead]) -> list[ToolVersion]:
        return [ToolVersion(head, manifest_of(reader(head.tool.qualified))) for head in heads]


class Dear:
    """A tokenizer by which joined texts have more tokens than their parts."""

    tokenizers = ("words",)

    async def count(self, texts: Sequence[str], tokenizer: str) -> list[int]:
        return [10 ** text.count("\n") for text in texts]


async def test_what_is_dropped_to_keep_the_budget_is_named_as_it_was_asked_for() -> None:
    wanted = SchemaRequest(("acme.find_order", "tools/acme.find_more"), Tier.SCHEMA, "", 20, None)
    shelf: Any = Shelf()
    language: Any = Dear()
    trust: Any = SimpleNamespace(trust_in=lambda tool: ToolTrust(tool))
    found = await get_tool_schemas(
        wanted, catalogue=shelf, policy=None, trust=trust, counter=TokenCounter(language), now=NOW
    )
    assert [each.version.head.tool.qualified for each in found.loaded] == ["acme.find_order"]
    assert found.unloaded == [UnloadedTool("tools/acme.find_more", UnloadedReason.OVER_BUDGET, 10)]
    assert found.tokens == 10
