"""`toolmesh tools search`, `surface` and `schema`: what is asked for, and what a person reads."""

from __future__ import annotations

import json
from typing import Any

import pytest
from toolmesh.registry.v1 import discovery_service_pb2 as pb
from toolmesh.registry.v1 import tool_manifest_pb2

SCORE = pb.ToolScore(score=0.61, trust=0.5, relevance=0.7, latency=1.0, cost=0.5, lexical=0.4, semantic=0.8)


def found(**more: Any) -> pb.SearchToolsResponse:
    tool = pb.FoundTool(
        tool="tools/acme.send_email",
        version="tools/acme.send_email/versions/1.2.0",
        title="Send an email",
        mutation_class=tool_manifest_pb2.MUTATION_CLASS_WRITE_IRREVERSIBLE,
        score=SCORE,
    )
    return pb.SearchToolsResponse(tools=[tool], total_candidates=4, total_filtered=1, **more)


def test_search_options_are_sent(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("SearchTools", found())
    ran = toolmesh(
        *("tools", "search", "write to a customer", "--min-trust", "0.4", "--tag", "mail", "--namespace", "acme"),
        *("--capability", "mail.send", "--read-only", "--version", "^1", "--keywords", "--forbidden", "--limit", "5"),
    )
    assert ran.exit_code == 0
    request = mesh.of("SearchTools")[0].request
    assert (request.query, request.max_results, list(request.capabilities)) == ("write to a customer", 5, ["mail.send"])
    assert request.mode == pb.SEARCH_MODE_LEXICAL
    wanted = request.filter
    assert (wanted.min_trust, list(wanted.tags), list(wanted.namespaces)) == (0.4, ["mail"], ["acme"])
    assert list(wanted.mutation_classes) == [tool_manifest_pb2.MUTATION_CLASS_READ_ONLY]
    assert (wanted.version_constraint, wanted.include_forbidden) == ("^1", True)


def test_names_that_are_easily_taken_for_a_found_tool_are_beside_its_title(toolmesh: Any, mesh: Any) -> None:
    response = found()
    response.tools[0].look_alikes.add(name="tools/globex.send_emails", kind="lookalike", older=True)
    mesh.answer("SearchTools", response)
    line = toolmesh("tools", "search", "mail").stdout.splitlines()[1]
    assert line.endswith("Send an email (not to be confused with globex.send_emails (older))")


def test_every_part_of_a_rank_is_explained(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("SearchTools", found(filter_effects=[pb.FilterEffect(filter="min_trust", removed=3)]))
    ran = toolmesh("tools", "search", "mail", "--explain")
    heading, line = ran.stdout.splitlines()
    assert heading.split() == ["TOOL", "SCORE", "EFFECT", "TITLE", "WHY"]
    assert line.startswith("acme.send_email@1.2.0  0.61   write_irreversible  Send an email")
    for part in ("trust 0.50", "relevance 0.70", "latency 1.00", "cost 0.50", "words 0.40", "meaning 0.80"):
        assert part in line
    assert "min_trust 3" in ran.stderr
    brief = toolmesh("tools", "search", "mail")
    assert "trust" not in brief.stdout


def test_a_search_without_results_prints_the_reason_and_the_nearest_tools(toolmesh: Any, mesh: Any) -> None:
    none = pb.NoMatch(reason=pb.NO_MATCH_REASON_NO_CANDIDATE, nearest=["acme.send_email"])
    mesh.answer("SearchTools", pb.SearchToolsResponse(no_match=none, semantic_pending=2))
    ran = toolmesh("tools", "search", "sned")
    assert ran.stdout == ""
    assert "no candidate" in ran.stderr
    assert "acme.send_email" in ran.stderr
    answer = json.loads(toolmesh("tools", "search", "sned", "--json").stdout)
    assert answer["no_match"]["reason"] == "no_candidate"


def test_a_surface_is_printed_as_it_is_and_facts_beside_it(toolmesh: Any, mesh: Any) -> None:
    blocks = [pb.SurfaceBlock(text="1 tools\n"), pb.SurfaceBlock(text='{"name":"a"}\n')]
    surface = pb.ToolSurface(blocks=blocks, token_count=9, token_budget=50, tokenizer="o200k_base")
    mesh.answer("CompileSurface", pb.CompileSurfaceResponse(surface=surface))
    ran = toolmesh("tools", "surface", "a task", "--budget", "50", "--tokenizer", "o200k_base")
    assert ran.stdout == '1 tools\n{"name":"a"}\n'
    assert "9 of 50 tokens" in ran.stderr
    request = mesh.of("CompileSurface")[0].request
    assert (request.task, request.token_budget, request.tokenizer) == ("a task", 50, "o200k_base")


def test_a_budget_that_holds_nothing_is_a_failure_with_the_least_that_would_do(toolmesh: Any, mesh: Any) -> None:
    small = pb.BudgetTooSmall(token_budget=2, required_tokens=8)
    mesh.answer("CompileSurface", pb.CompileSurfaceResponse(budget_too_small=small))
    ran = toolmesh("tools", "surface", "a task", "--budget", "2")
    assert ran.exit_code == 1
    assert "at least 8" in ran.stderr


@pytest.mark.parametrize(("loaded", "code"), [(True, 0), (False, 1)])
def test_schemas_come_with_their_digests_and_what_is_missing_is_named(
    toolmesh: Any, mesh: Any, loaded: bool, code: int
) -> None:
    schema = pb.ToolSchema(
        version="tools/core.echo/versions/1.0.0",
        digest="sha256:ab",
        block=pb.SurfaceBlock(text='{"name":"core.echo"}\n'),
    )
    missing = pb.UnloadedTool(tool="nothing", reason=pb.UNLOADED_REASON_NOT_FOUND)
    answer = pb.GetToolSchemasResponse(schemas=[schema] if loaded else [], unloaded=[missing])
    mesh.answer("GetToolSchemas", answer)
    ran = toolmesh("tools", "schema", "echo@1.0.0", "nothing", "--detail")
    assert ran.exit_code == code
    assert ran.stdout == ('{"name":"core.echo"}\n' if loaded else "")
    assert ("sha256:ab" in ran.stderr) is loaded
    assert "nothing: not_found" in ran.stderr
    request = mesh.of("GetToolSchemas")[0].request
    assert list(request.tools) == ["tools/core.echo/versions/1.0.0", "nothing"]
    assert request.tier == pb.SURFACE_TIER_DETAIL


def test_schemas_as_json_are_json(toolmesh: Any, mesh: Any) -> None:
    schema = pb.ToolSchema(
        version="tools/core.echo/versions/1.0.0",
        digest="sha256:ab",
        input_schema=b'{"type":"object"}',
        output_schema=b'{"type":"string"}',
    )
    mesh.answer("GetToolSchemas", pb.GetToolSchemasResponse(schemas=[schema]))
    ran = toolmesh("tools", "schema", "echo", "--json")
    [found] = json.loads(ran.stdout)["schemas"]
    assert (found["input_schema"], found["output_schema"]) == ({"type": "object"}, {"type": "string"})
