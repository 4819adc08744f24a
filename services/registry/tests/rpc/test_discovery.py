"""Discovery through the real server with a real database and language process."""

from __future__ import annotations

from typing import Any

import pytest
from toolmesh.registry.v1 import discovery_service_pb2 as pb
from toolmesh.registry.v1 import discovery_service_pb2_grpc as rpc
from toolmesh.registry.v1 import lifecycle_service_pb2 as lifecycle
from toolmesh.registry.v1 import lifecycle_service_pb2_grpc as lifecycle_rpc
from toolmesh.registry.v1 import registry_service_pb2, tool_manifest_pb2, tool_version_pb2

from libs.common.errors import Reason
from libs.common.json.jsonio import dump
from services.registry.adapters.search import tool_directory
from services.registry.tests.calls import PATIENCE, bearer, refusal
from services.registry.tests.conftest import Replica, Start
from services.registry.tests.manifests import reader, writer
from services.registry.tests.polling import until

NESTED = {
    "type": "object",
    "properties": {
        "page": {
            "type": "object",
            "properties": {
                "margins": {
                    "type": "object",
                    "properties": {"left": {"type": "integer"}},
                    "additionalProperties": False,
                }
            },
            "additionalProperties": False,
        }
    },
}


def stub(replica: Replica, peer: str = "operator") -> Any:
    return replica.stub(peer, rpc.DiscoveryServiceStub)


async def register(replica: Replica, *manifests: Any) -> None:
    registry = replica.stub()
    for manifest in manifests:
        request = registry_service_pb2.RegisterToolRequest(manifest=manifest)
        await registry.RegisterTool(request, timeout=PATIENCE)


def translator(**changes: Any) -> Any:
    changes = {"search_hint": "translation languages", **changes}
    return reader("acme.translate_text", title="Translate text", **changes)


def names(answer: Any) -> list[str]:
    return [found.tool for found in answer.tools]


async def search(replica: Replica, query: str = "", **more: Any) -> Any:
    return await stub(replica).SearchTools(pb.SearchToolsRequest(query=query, **more), timeout=PATIENCE)


async def test_words_find_a_tool_as_soon_as_it_is_registered_and_the_answer_says_what_is_pending(
    registry: Replica,
) -> None:
    await register(registry, translator(), reader("acme.find_order"))
    found = await until(lambda: search(registry, "translation"), lambda answer: bool(answer.tools))
    assert names(found) == ["tools/acme.translate_text"]
    assert found.semantic_use == pb.SEMANTIC_USE_PARTIAL
    assert found.semantic_pending == 2
    assert not found.pending_providers
    assert not found.HasField("no_match")


async def test_discovery_recovers_from_an_unexpected_error(registry: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    await register(registry, reader("acme.find_order", search_hint="order"))
    await until(lambda: search(registry, "order"), lambda answer: bool(answer.tools))
    usual, faults = tool_directory.index_entry, [RuntimeError("unforeseen")]  # type: ignore[attr-defined]

    def index_entry(*arguments: Any, **more: Any) -> Any:
        if faults:
            raise faults.pop()
        return usual(*arguments, **more)

    monkeypatch.setattr(tool_directory, "index_entry", index_entry)
    await register(registry, translator())
    found = await until(lambda: search(registry, "translation"), lambda answer: bool(answer.tools))
    assert names(found) == ["tools/acme.translate_text"]
    assert "tools/acme.find_order" in names(await search(registry, "order"))
    assert not faults


async def test_meaning_finds_a_tool_once_its_vector_is_there(start: Start) -> None:
    replica = await start(settle_seconds=0.0)
    await register(
        replica,
        translator(description="Renders a text in another human language."),
        reader("acme.find_order", description="Finds an order by its number.", title="Find an order"),
    )
    asked = "say this paragraph in Japanese"
    found = await until(
        lambda: search(replica, asked),
        lambda answer: answer.semantic_use == pb.SEMANTIC_USE_COMPLETE and len(answer.tools) > 0,
    )
    assert found.tools[0].tool == "tools/acme.translate_text"
    score = found.tools[0].score
    assert score.semantic > 0.3
    expected = 0.4 * score.trust + 0.3 * score.relevance + 0.2 * score.latency + 0.1 * score.cost
    assert score.score == pytest.approx(expected, abs=1e-5)
    assert found.tools[0].ref.selection_ref == found.tools[0].version
    words = await search(replica, asked, mode=pb.SEARCH_MODE_LEXICAL)
    assert words.semantic_use == pb.SEMANTIC_USE_NOT_ASKED


async def test_names_and_aliases_are_found_exactly_and_first(registry: Replica) -> None:
    await register(registry, reader("acme.find_order", aliases=["order_lookup"]), reader("acme.find_orders_all"))
    for asked in ("acme.find_order", "acme.order_lookup", "tools/acme.find_order"):
        found = await until(lambda a=asked: search(registry, a), lambda answer: len(answer.tools) > 0)  # type: ignore[misc]
        assert found.tools[0].tool == "tools/acme.find_order"
        assert found.tools[0].score.exact == 1
    listed = await search(registry, names=["acme.order_lookup", "acme.nothing_such"])
    assert names(listed) == ["tools/acme.find_order"]


async def test_nothing_found_says_why(registry: Replica) -> None:
    empty = await search(registry, "anything")
    assert empty.no_match.reason == pb.NO_MATCH_REASON_EMPTY_REGISTRY
    await register(registry, reader("acme.find_order"))
    await until(lambda: search(registry, "order"), lambda answer: bool(answer.tools))
    other = await search(registry, "fnd_order", mode=pb.SEARCH_MODE_LEXICAL)
    # The index has the term `order`, but not a misspelt one.
    assert names(other) == ["tools/acme.find_order"]
    none = await search(registry, "fnd_ordr", mode=pb.SEARCH_MODE_LEXICAL)
    assert none.no_match.reason == pb.NO_MATCH_REASON_NO_CANDIDATE
    assert list(none.no_match.nearest) == ["acme.find_order"]
    filtered = await search(registry, "order", filter=pb.SearchFilter(min_trust=1.0))
    assert filtered.no_match.reason == pb.NO_MATCH_REASON_ALL_FILTERED
    assert [(effect.filter, effect.removed) for effect in filtered.filter_effects] == [("min_trust", 1)]
    assert (filtered.total_candidates, filtered.total_filtered) == (1, 0)


async def test_a_caller_finds_what_its_token_may_call(registry: Replica, signer: Any) -> None:
    await register(
        registry,
        reader("acme.find_order"),
        reader("acme.list_orders", permission=tool_manifest_pb2.PermissionProfile(required_scopes=["orders:all"])),
        reader("beta.find_order"),
    )
    await until(lambda: search(registry, "order"), lambda answer: len(answer.tools) == 3)
    token = signer.mint("did:web:ann", scope="tools:read orders:read", tools=[{"tool": "acme.*", "version": "^1.0"}])
    edge, request = stub(registry, "edge"), pb.SearchToolsRequest(query="order")
    found = await edge.SearchTools(request, metadata=bearer(token), timeout=PATIENCE)
    assert names(found) == ["tools/acme.find_order"]
    assert [(effect.filter, effect.removed) for effect in found.filter_effects] == [("permission", 2)]
    request.filter.include_forbidden = True
    everything = await edge.SearchTools(request, metadata=bearer(token), timeout=PATIENCE)
    assert len(everything.tools) == 3
    elsewhere = signer.mint("did:web:bob", scope="tools:read", tools=[{"tool": "other.*", "version": ""}])
    none = await edge.SearchTools(pb.SearchToolsRequest(query="order"), metadata=bearer(elsewhere), timeout=PATIENCE)
    assert none.no_match.reason == pb.NO_MATCH_REASON_NOT_PERMITTED
    assert not none.no_match.nearest


async def test_discovery_hides_what_policy_forbids_and_marks_what_needs_an_approval(
    registry: Replica, signer: Any
) -> None:
    await register(
        registry,
        *(reader(f"acme.find_order_{number:02}", tags=["barred"]) for number in range(60)),
        reader("acme.list_orders", tags=["approved"]),
        reader("acme.count_orders"),
    )
    await until(lambda: search(registry), lambda answer: answer.total_candidates == 62)
    token = signer.mint("did:web:ann", scope="tools:read orders:read", tools=[{"tool": "acme.*", "version": ""}])
    edge, more = stub(registry, "edge"), {"metadata": bearer(token), "timeout": PATIENCE}

    found = await edge.SearchTools(pb.SearchToolsRequest(query="find order", max_results=5), **more)
    usable = {"tools/acme.list_orders": 2, "tools/acme.count_orders": 1}
    assert {tool.tool: tool.usability for tool in found.tools} == usable
    assert [(effect.filter, effect.removed) for effect in found.filter_effects] == [("policy", 60)]
    request = pb.SearchToolsRequest(query="find order", filter=pb.SearchFilter(include_forbidden=True), max_results=5)
    everything = await edge.SearchTools(request, **more)
    assert [tool.usability for tool in everything.tools] == [pb.TOOL_USABILITY_FORBIDDEN] * 5
    none = await edge.SearchTools(pb.SearchToolsRequest(names=["acme.find_order_07"]), **more)
    assert none.no_match.reason == pb.NO_MATCH_REASON_NOT_PERMITTED
    assert not none.no_match.nearest

    compiled = (
        await edge.CompileSurface(pb.CompileSurfaceRequest(task="find order", token_budget=4000), **more)
    ).surface
    assert set(compiled.tool_refs) == set(usable)
    assert {tool.version.split("/versions/")[0] for tool in compiled.loaded_tools} <= set(usable)
    assert (compiled.totals.usable, compiled.totals.blocked) == (2, 60)
    assert {(tool.reason, tool.detail) for tool in compiled.blocked_tools} == {
        (pb.SURFACE_REASON_POLICY_BLOCKED, "policy")
    }
    assert "list_orders?" in compiled.blocks[0].text
    assert "count_orders?" not in compiled.blocks[0].text

    asked = ["acme.list_orders", "acme.count_orders", "acme.find_order_03"]
    loaded = await edge.GetToolSchemas(pb.GetToolSchemasRequest(tools=asked), **more)
    assert [schema.needs_approval for schema in loaded.schemas] == [True, False]
    assert [(tool.tool, tool.reason) for tool in loaded.unloaded] == [
        ("acme.find_order_03", pb.UNLOADED_REASON_NOT_PERMITTED)
    ]


async def test_a_token_for_an_older_version_is_shown_that_one(registry: Replica, signer: Any) -> None:
    await register(registry, reader("acme.find_order"), reader("acme.find_order", "2.0.0"))
    await until(lambda: search(registry, "order"), lambda answer: bool(answer.tools))
    old, edge = "tools/acme.find_order/versions/1.0.0", stub(registry, "edge")
    token = signer.mint("did:web:ann", scope="tools:read orders:read", tools=[{"tool": "acme.*", "version": "^1"}])
    more = {"metadata": bearer(token), "timeout": PATIENCE}
    found = await edge.SearchTools(pb.SearchToolsRequest(query="order"), **more)
    assert [tool.version for tool in found.tools] == [old]
    compiled = await edge.CompileSurface(pb.CompileSurfaceRequest(task="order", token_budget=2000), **more)
    assert [tool.version for tool in compiled.surface.loaded_tools] == [old]
    loaded = await edge.GetToolSchemas(pb.GetToolSchemasRequest(tools=["acme.find_order"]), **more)
    assert [schema.version for schema in loaded.schemas] == [old]


async def test_the_version_that_a_constraint_means_is_answered(registry: Replica) -> None:
    await register(registry, reader(version="1.2.0"), reader(version="2.0.0"))
    old = pb.SearchFilter(version_constraint="^1.0")
    found = await until(lambda: search(registry, "order", filter=old), lambda answer: len(answer.tools) == 1)
    assert found.tools[0].version == "tools/acme.find_order/versions/1.2.0"
    none = await search(registry, "order", filter=pb.SearchFilter(version_constraint="^3"))
    assert [effect.filter for effect in none.filter_effects] == ["version_constraint"]
    broken = pb.SearchToolsRequest(query="order", filter=pb.SearchFilter(version_constraint="nonsense"))
    assert (await refusal(stub(registry).SearchTools(broken))).reason is Reason.INVALID_REQUEST


async def surface(replica: Replica, task: str, budget: int, **more: Any) -> Any:
    request = pb.CompileSurfaceRequest(task=task, token_budget=budget, **more)
    return await stub(replica).CompileSurface(request, timeout=PATIENCE)


async def test_a_surface_names_what_is_there_and_loads_what_is_useful(registry: Replica) -> None:
    await register(registry, translator(), writer("acme.cancel_order"), reader("acme.find_order"))
    await until(lambda: search(registry), lambda answer: len(answer.tools) == 3)
    found = (await surface(registry, "translation", 400, scope="a turn")).surface
    assert found.token_count <= 400
    assert found.scope == "a turn"
    assert found.surface_id.startswith("surfaces/")
    assert found.tokenizer == "o200k_base"
    text = "".join(block.text for block in found.blocks)
    assert "cancel_order~" in text
    assert [loaded.version for loaded in found.loaded_tools] == ["tools/acme.translate_text/versions/1.0.0"]
    assert found.loaded_tools[0].digest.startswith("sha256:")
    assert {ref.name for ref in found.deferred_tools} == {"tools/acme.cancel_order", "tools/acme.find_order"}
    assert all(ref.reason == pb.SURFACE_REASON_DEFERRED_UNTIL_DISCOVERED for ref in found.deferred_tools)
    assert (found.totals.usable, found.totals.loaded, found.totals.indexed) == (3, 1, 3)


async def test_a_budget_below_the_first_line_is_answered_as_such(registry: Replica) -> None:
    await register(registry, translator())
    await until(lambda: search(registry), lambda answer: len(answer.tools) == 1)
    small = (await surface(registry, "translation", 3)).budget_too_small
    assert small.token_budget == 3
    fits = await surface(registry, "translation", small.required_tokens)
    assert fits.surface.token_count <= small.required_tokens
    assert (await surface(registry, "translation", small.required_tokens - 1)).HasField("budget_too_small")


async def test_an_unknown_tokenizer_is_refused(registry: Replica) -> None:
    for call in (
        stub(registry).CompileSurface(pb.CompileSurfaceRequest(token_budget=100, tokenizer="morse")),
        stub(registry).GetToolSchemas(pb.GetToolSchemasRequest(tools=["acme.find_order"], tokenizer="morse")),
    ):
        error = await refusal(call)
        assert error.reason is Reason.INVALID_REQUEST
        assert [violation.path for violation in error.violations] == ["tokenizer"]


async def test_what_may_not_be_called_is_reported_with_the_reasons_of_the_standard(
    registry: Replica, signer: Any
) -> None:
    availability = tool_manifest_pb2.Availability

    def needing(**needs: Any) -> dict[str, Any]:
        return {"interface": tool_manifest_pb2.ToolInterface(availability=availability(**needs))}

    await register(
        registry,
        reader("acme.plain_tool"),
        reader("acme.gated_tool", **needing(feature_gates=["beta"])),
        reader("acme.model_tool", **needing(model_support=["vision"])),
        reader("acme.setup_tool", **needing(required_credentials=["crm_key"])),
        reader("acme.scoped_tool", permission=tool_manifest_pb2.PermissionProfile(required_scopes=["root:all"])),
        reader("beta.other_tool"),
        reader("acme.chain_tool"),
    )
    await until(
        lambda: search(registry, filter=pb.SearchFilter(states=list(range(1, 10)))),  # type: ignore[arg-type]
        lambda answer: len(answer.tools) == 7,
    )
    token = signer.mint("did:web:ann", scope="tools:read orders:read", tools=[{"tool": "acme.*", "version": ""}])
    request = pb.CompileSurfaceRequest(
        task="order", token_budget=2000, context=pb.SurfaceContext(model="text-1", call_chain=["acme.chain_tool"])
    )
    found = (await stub(registry, "edge").CompileSurface(request, metadata=bearer(token), timeout=PATIENCE)).surface
    withheld = {tool.tool: tool.reason for tool in (*found.blocked_tools, *found.excluded_tools)}
    assert withheld == {
        "tools/acme.gated_tool": pb.SURFACE_REASON_FEATURE_DISABLED,
        "tools/acme.model_tool": pb.SURFACE_REASON_MODEL_UNSUPPORTED,
        "tools/acme.setup_tool": pb.SURFACE_REASON_SETUP_REQUIRED,
        "tools/acme.scoped_tool": pb.SURFACE_REASON_ROLE_NOT_ALLOWED,
        "tools/beta.other_tool": pb.SURFACE_REASON_POLICY_BLOCKED,
        "tools/acme.chain_tool": pb.SURFACE_REASON_RECURSIVE_TOOL_FORBIDDEN,
    }
    assert {tool.tool for tool in found.blocked_tools} == {"tools/acme.scoped_tool", "tools/beta.other_tool"}
    assert list(found.tool_refs) == ["tools/acme.plain_tool"]
    assert "other_tool" not in "".join(block.text for block in found.blocks)
    assert list(found.role_constraints) == ["orders:read", "tools:read"]


async def test_schemas_are_loaded_on_demand_with_what_pins_them(registry: Replica) -> None:
    manifest = reader("acme.deep_tool")
    manifest.input.schema = dump(NESTED)
    manifest.input.ClearField("examples")
    await register(registry, manifest, reader("acme.find_order"))
    wanted = ["acme.deep_tool", "tools/acme.find_order/versions/1.0.0", "acme.nothing_such", "acme.find_order@9"]
    top = await stub(registry).GetToolSchemas(pb.GetToolSchemasRequest(tools=wanted), timeout=PATIENCE)
    assert [schema.version for schema in top.schemas] == [
        "tools/acme.deep_tool/versions/1.0.0",
        "tools/acme.find_order/versions/1.0.0",
    ]
    assert [(left.tool, left.reason) for left in top.unloaded] == [
        ("acme.nothing_such", pb.UNLOADED_REASON_NOT_FOUND),
        ("acme.find_order@9", pb.UNLOADED_REASON_NOT_FOUND),
    ]
    assert "margins" in top.schemas[0].input_schema.decode()
    assert "left" not in top.schemas[0].block.text
    detail = await stub(registry).GetToolSchemas(
        pb.GetToolSchemasRequest(tools=wanted[:1], tier=pb.SURFACE_TIER_DETAIL), timeout=PATIENCE
    )
    assert '"left"' in detail.schemas[0].block.text
    tiers = [answer.schemas[0].block.tier for answer in (top, detail)]
    assert tiers == [pb.SURFACE_TIER_SCHEMA, pb.SURFACE_TIER_DETAIL]
    tight = await stub(registry).GetToolSchemas(
        pb.GetToolSchemasRequest(tools=wanted[:2], token_budget=top.schemas[0].block.tokens), timeout=PATIENCE
    )
    assert [schema.version for schema in tight.schemas] == ["tools/acme.deep_tool/versions/1.0.0"]
    assert tight.token_count <= top.schemas[0].block.tokens
    assert [left.reason for left in tight.unloaded] == [pb.UNLOADED_REASON_OVER_BUDGET]


async def test_a_state_that_changes_is_seen_by_the_next_search(registry: Replica) -> None:
    await register(registry, reader("acme.find_order"))
    await until(lambda: search(registry, "order"), lambda answer: bool(answer.tools))
    verbs = registry.stub("operator", lifecycle_rpc.LifecycleServiceStub)
    await verbs.QuarantineTool(
        lifecycle.QuarantineToolRequest(name="tools/acme.find_order/versions/1.0.0", reason="a look"), timeout=PATIENCE
    )
    gone = await until(lambda: search(registry, "order"), lambda answer: not answer.tools)
    assert [(effect.filter, effect.removed) for effect in gone.filter_effects] == [("states", 1)]
    quarantined = pb.SearchFilter(states=[tool_version_pb2.LIFECYCLE_STATE_QUARANTINED])
    assert len((await search(registry, "order", filter=quarantined)).tools) == 1
