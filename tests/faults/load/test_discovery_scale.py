"""Ten thousand tools through the real server: found, shown within a budget, and kept fresh."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sqlalchemy import insert, update
from sqlalchemy.ext.asyncio import AsyncEngine
from toolmesh.registry.v1 import discovery_service_pb2 as pb
from toolmesh.registry.v1 import discovery_service_pb2_grpc as rpc
from toolmesh.registry.v1 import registry_service_pb2

from libs.common.sql.engine import transaction
from services.registry.adapters.language.process import MODEL
from services.registry.adapters.postgres import tables
from services.registry.adapters.postgres.ledger import _tool_row, _version_row
from services.registry.adapters.search.vectors import PostgresVectors
from services.registry.domain.catalog.tool import with_version
from services.registry.domain.discovery.text import EMBEDDING_TEXT_VERSION
from services.registry.domain.model import ToolVersion
from services.registry.tests.calls import PATIENCE
from services.registry.tests.conftest import Start, authz_address, database_url, engine, start  # noqa: F401
from services.registry.tests.domain.discovery import discovery_corpus
from services.registry.tests.polling import until

TOOLS = 10_000


async def fill(engine: AsyncEngine) -> None:  # noqa: F811
    """Store ten thousand admitted tools in one transaction; to register each would take minutes and show nothing
    more."""
    kinds = discovery_corpus.load()["tools"]
    stored = [_numbered(kinds[number % len(kinds)], number) for number in range(TOOLS)]
    async with transaction(engine) as connection:
        owners = sorted({version.head.tool.namespace for version in stored})
        moments = {"create_time": discovery_corpus.NOW, "update_time": discovery_corpus.NOW}
        owned = [
            {"namespace": each, "provider": each, "owner": "operator", "revision": 1, **moments} for each in owners
        ]
        await connection.execute(insert(tables.namespaces), owned)
        await connection.execute(insert(tables.tools), [_tool_row(with_version(None, [], each)) for each in stored])
        leads = [{"name": each.head.tool.qualified, "tool": each.head.tool.qualified} for each in stored]
        await connection.execute(insert(tables.tool_names), leads)
        await connection.execute(insert(tables.tool_versions), [_version_row(each, "operator") for each in stored])
        await connection.execute(update(tables.change_counter).values(last=TOOLS))


def _numbered(kind: Mapping[str, Any], number: int) -> ToolVersion:
    namespace, tool_id = kind["name"].split(".")
    name = f"{namespace}-{number // 1000}.{tool_id}_{number % 1000}"
    made = discovery_corpus.version({**kind, "name": name})
    return replace(made, head=replace(made.head, standing=replace(made.head.standing, sequence=number + 1)))


async def embed(engine: AsyncEngine) -> None:  # noqa: F811
    """Give every tool a vector of its own, as the background would in some minutes."""
    vectors = PostgresVectors(engine, f"{MODEL}/{EMBEDDING_TEXT_VERSION}")
    while claimed := await vectors.claim(500):
        made = {}
        for each in claimed:
            seed = int.from_bytes(hashlib.sha256(each.digest.encode()).digest()[:4])
            row = np.random.default_rng(seed).standard_normal(384)
            made[each.digest] = (row / np.linalg.norm(row)).astype("<f2").tobytes()
        await vectors.put(made)


async def milliseconds(call: Callable[[], Awaitable[Any]], times: int = 20) -> float:
    await call()
    begun = time.perf_counter()
    for _ in range(times):
        await call()
    return (time.perf_counter() - begun) / times * 1000


@pytest.mark.faults
@pytest.mark.timeout(900)
async def test_ten_thousand_tools_are_found_and_shown_within_a_budget(
    start: Start,  # noqa: F811
    engine: AsyncEngine,  # noqa: F811
    record_property: Callable[[str, object], None],
) -> None:
    await fill(engine)
    await embed(engine)
    replica = await start()
    discovery = replica.stub("operator", rpc.DiscoveryServiceStub)
    numbers = iter(range(10_000))

    async def search(query: str, **more: Any) -> Any:
        return await discovery.SearchTools(pb.SearchToolsRequest(query=query, **more), timeout=PATIENCE)

    async def surface() -> Any:
        request = pb.CompileSurfaceRequest(task="send an email to a customer", token_budget=2000)
        return (await discovery.CompileSurface(request, timeout=PATIENCE)).surface

    found = await until(lambda: search("refund a payment"), lambda answer: answer.total_candidates > 0)
    assert found.semantic_use == pb.SEMANTIC_USE_COMPLETE
    assert "refund_payment" in found.tools[0].tool
    shown = await surface()
    assert shown.token_count <= 2000
    assert shown.totals.usable == TOOLS
    assert shown.categories
    named = await search(found.tools[0].tool)
    assert named.tools[0].tool == found.tools[0].tool
    figures = {
        "resolve": await milliseconds(
            lambda: replica.stub().ResolveTool(
                registry_service_pb2.ResolveToolRequest(tool=found.tools[0].tool), timeout=PATIENCE
            )
        ),
        "keywords": await milliseconds(lambda: search("refund a payment", mode=pb.SEARCH_MODE_LEXICAL)),
        "meaning, question known": await milliseconds(lambda: search("give the money back")),
        "meaning, question new": await milliseconds(lambda: search(f"give the money back {next(numbers)}")),
        "surface": await milliseconds(surface),
    }
    for name, figure in figures.items():
        record_property(name, f"{figure:.1f} ms")
