"""Search, surface and schemas of both clients, and the renderings for model interfaces."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from toolmesh.registry.v1 import discovery_service_pb2 as pb
from toolmesh.registry.v1 import tool_manifest_pb2, tool_trust_pb2, tool_version_pb2
from toolmesh_sdk import InvalidInputError, LookAlike, Reason, ToolNotFoundError
from toolmesh_sdk.discovery import SCHEMAS_PER_REQUEST, parse_schemas

INPUT = {"type": "object", "properties": {"n": {"const": 2**64 - 1}}}


def schema(name: str, **fields: Any) -> pb.ToolSchema:
    known: dict[str, Any] = {
        "version": f"tools/{name}/versions/1.2.0",
        "digest": "sha256:1",
        "input_schema": json.dumps(INPUT).encode(),
        "output_schema": b'{"type": "object"}',
        "title": "Pay",
        "description": "Pays a bill.",
        "mutation_class": tool_manifest_pb2.MUTATION_CLASS_WRITE_IRREVERSIBLE,
        "state": tool_version_pb2.LIFECYCLE_STATE_AVAILABLE,
    }
    return pb.ToolSchema(**{**known, **fields})


async def test_a_search_asks_for_all_it_was_given(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    found = pb.FoundTool(
        version="tools/acme.pay/versions/1.2.0",
        mutation_class=tool_manifest_pb2.MUTATION_CLASS_READ_ONLY,
        score=pb.ToolScore(score=0.7),
        look_alikes=[tool_trust_pb2.LookAlike(name="tools/globex.pays", kind="lookalike", older=True)],
    )
    mesh.answer("SearchTools", pb.SearchToolsResponse(tools=[found], total_candidates=3))
    options = {"capabilities": ["c"], "tags": ["t"], "namespaces": ["acme"], "min_trust": 0.5, "read_only": True}
    more = {"version": "^1", "keywords_only": True, "include_forbidden": True, "max_cost": 0.0}
    result = await drive(serve()).do("search", "pay a bill", max_results=3, **options, **more)
    assert mesh.seen[0].request == pb.SearchToolsRequest(
        query="pay a bill",
        capabilities=["c"],
        max_results=3,
        mode=pb.SEARCH_MODE_LEXICAL,
        filter=pb.SearchFilter(
            min_trust=0.5,
            max_cost=0.0,
            mutation_classes=[tool_manifest_pb2.MUTATION_CLASS_READ_ONLY],
            namespaces=["acme"],
            tags=["t"],
            version_constraint="^1",
            include_forbidden=True,
        ),
    )
    assert (len(result), result.candidates, result.no_match) == (1, 3, "")
    assert [(tool.name, tool.version, tool.mutation_class, tool.score) for tool in result] == [
        ("acme.pay", "1.2.0", "read_only", 0.7)
    ]
    assert result[0].look_alikes == (LookAlike("tools/globex.pays", "lookalike", True),)


async def test_an_empty_search_says_why(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    none = pb.NoMatch(reason=pb.NO_MATCH_REASON_NOT_PERMITTED, nearest=["acme.pay"])
    mesh.answer("SearchTools", pb.SearchToolsResponse(no_match=none))
    result = await drive(serve()).do("search", "pay")
    assert (len(result), result.no_match, result.nearest) == (0, "not_permitted", ("acme.pay",))


async def test_a_surface_has_its_text_and_the_schemas_of_its_tools(
    drive: Any, mesh: Any, serve: Callable[..., str]
) -> None:
    blocks = [pb.SurfaceBlock(text="index\n"), pb.SurfaceBlock(text="schema\n")]
    count = SCHEMAS_PER_REQUEST + 1
    loaded = [pb.LoadedTool(version=f"tools/acme.pay{n}/versions/1.2.0") for n in range(count)]
    deferred = [pb.DeferredToolRef(name="tools/acme.more")]
    surface = pb.ToolSurface(blocks=blocks, loaded_tools=loaded, deferred_tools=deferred, token_count=5, token_budget=9)
    mesh.answer("CompileSurface", pb.CompileSurfaceResponse(surface=surface))

    def answer(request: Any) -> Any:
        names = [version.removeprefix("tools/").partition("/")[0] for version in request.tools]
        return pb.GetToolSchemasResponse(schemas=[schema(name) for name in names])

    mesh.answer("GetToolSchemas", answer)
    result = await drive(serve()).do("surface", "pay bills", 9, model="m", scope="turn")
    assert [len(call.request.tools) for call in mesh.of("GetToolSchemas")] == [SCHEMAS_PER_REQUEST, 1]
    assert (result.text, result.token_count, result.deferred, len(result)) == (
        "index\nschema\n",
        5,
        ("acme.more",),
        count,
    )
    assert result.find("acme__pay7") is result.find("acme.pay7")
    assert result.find("acme.pay7").version == "1.2.0"
    with pytest.raises(ToolNotFoundError):
        result.find("acme__other")


async def test_a_budget_that_is_too_small_names_the_smallest(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    small = pb.BudgetTooSmall(token_budget=2, required_tokens=40)
    mesh.answer("CompileSurface", pb.CompileSurfaceResponse(budget_too_small=small))
    with pytest.raises(InvalidInputError) as caught:
        await drive(serve()).do("surface", "pay", 2)
    assert (caught.value.reason, caught.value.metadata["required_tokens"]) == (Reason.INVALID_REQUEST, "40")


async def test_schemas_that_are_missing_are_named(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    missing = pb.UnloadedTool(tool="acme.no", reason=pb.UNLOADED_REASON_NOT_FOUND)
    mesh.answer("GetToolSchemas", pb.GetToolSchemasResponse(schemas=[schema("acme.pay")], unloaded=[missing]))
    result = await drive(serve()).do("schemas", ["acme.pay", "acme.no"], detail=True)
    assert mesh.seen[0].request.tier == pb.SURFACE_TIER_DETAIL
    assert ([tool.name for tool in result], result.unloaded) == (["acme.pay"], {"acme.no": "not_found"})


def test_tools_are_rendered_for_each_interface() -> None:
    tools = parse_schemas([pb.GetToolSchemasResponse(schemas=[schema("acme.pay")])])
    function = {"name": "acme__pay", "description": "Pays a bill.", "parameters": INPUT}
    assert tools.as_openai() == [{"type": "function", "function": function}]
    assert tools.as_anthropic() == [{"name": "acme__pay", "description": "Pays a bill.", "input_schema": INPUT}]
    assert tools.as_mcp() == [
        {
            "name": "acme.pay",
            "title": "Pay",
            "description": "Pays a bill.",
            "inputSchema": INPUT,
            "outputSchema": {"type": "object"},
            "annotations": {"readOnlyHint": False, "destructiveHint": True},
        }
    ]


def test_an_output_that_is_no_object_has_no_schema_in_mcp() -> None:
    tools = parse_schemas(
        [pb.GetToolSchemasResponse(schemas=[schema("acme.pay", output_schema=b'{"type": "string"}')])]
    )
    assert "outputSchema" not in tools.as_mcp()[0]


def test_long_names_stay_different_and_within_the_limit() -> None:
    names = [f"{'a' * 60}.{'b' * 60}{end}" for end in ("1", "2")]
    tools = parse_schemas([pb.GetToolSchemasResponse(schemas=[schema(name) for name in names])])
    functions = {tool.function_name for tool in tools}
    assert len(functions) == 2
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in functions)
    assert {tools.find(name).name for name in functions} == set(names)
