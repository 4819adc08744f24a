"""`toolmesh tools search`, `surface` and `schema`: find tools, and show what a model sees of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs.admin_connection import as_caller
from toolmesh_sdk.cli.inputs.target import Target
from toolmesh_sdk.cli.inputs.target_options import add_target_options
from toolmesh_sdk.cli.inputs.tool_completion import complete_tool
from toolmesh_sdk.cli.tool_names import look_alike_remark, short_name, tool_or_version
from toolmesh_sdk.cli.views import output

if TYPE_CHECKING:
    from toolmesh.registry.v1 import discovery_service_pb2 as pb

MinTrust = Annotated[float, typer.Option(min=0.0, max=1.0, help="The minimum trust score, 0 to 1.")]
Tokenizer = Annotated[str, typer.Option(help="The tokenizer: o200k_base or cl100k_base.")]

# By pb.ToolUsability.
_REMARKS = {2: " (needs approval)", 3: " (forbidden)"}
# In the place of a tool: the document that people write.
_MANIFEST = "manifest"


def add_to(app: typer.Typer) -> None:
    """Add the commands to a group."""
    for command in (search, surface, schema):
        app.command()(command)


@report_errors
@add_target_options()
def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A name, keywords or a sentence.")] = "",
    capability: Annotated[list[str] | None, typer.Option(help="A required capability; repeatable.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only tools with this tag; repeatable.")] = None,
    namespace: Annotated[list[str] | None, typer.Option(help="Only tools of this namespace; repeatable.")] = None,
    min_trust: MinTrust = 0.0,
    read_only: Annotated[bool, typer.Option("--read-only", help="Only tools that change nothing.")] = False,
    version: Annotated[str, typer.Option(help="Only tools with a version that matches this constraint.")] = "",
    keywords: Annotated[bool, typer.Option("--keywords", help="Match keywords only, without semantic search.")] = False,
    forbidden: Annotated[bool, typer.Option("--forbidden", help="Include tools that the caller may not call.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=100, help="The maximum number of results.")] = 10,
    explain: Annotated[bool, typer.Option("--explain", help="Show the parts of each score.")] = False,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Search tools by name, keyword or meaning.

    Results are ordered by score, best first.

    \b
    Example:
      toolmesh tools search 'what time is it'
    """
    from toolmesh.registry.v1 import discovery_service_pb2 as pb
    from toolmesh.registry.v1 import tool_manifest_pb2
    from toolmesh.registry.v1.discovery_service_pb2_grpc import DiscoveryServiceStub

    from toolmesh_sdk.cli.views.documents import message_to_dict

    request = pb.SearchToolsRequest(
        query=query,
        capabilities=capability or (),
        max_results=limit,
        mode=pb.SEARCH_MODE_LEXICAL if keywords else pb.SEARCH_MODE_HYBRID,
        filter=pb.SearchFilter(
            min_trust=min_trust,
            tags=tag or (),
            namespaces=namespace or (),
            mutation_classes=[tool_manifest_pb2.MUTATION_CLASS_READ_ONLY] if read_only else (),
            version_constraint=version,
            include_forbidden=forbidden,
        ),
    )
    with as_caller(target) as transport:
        stub = DiscoveryServiceStub(transport.channel)
        response = transport.unary(stub.SearchTools, request, None, repeatable=True)
    if as_json:
        output.print_json(message_to_dict(response))
    elif response.tools:
        _print_results(response, explain=explain)
    else:
        _print_no_match(response)


@report_errors
@add_target_options()
def surface(
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task of the model.")] = "",
    budget: Annotated[int, typer.Option(min=1, max=1_000_000, help="The maximum number of tokens.")] = 2000,
    capability: Annotated[list[str] | None, typer.Option(help="A required capability; repeatable.")] = None,
    tokenizer: Tokenizer = "",
    model: Annotated[str, typer.Option(help="The model that reads the text.")] = "",
    min_trust: MinTrust = 0.0,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Print the tool descriptions for a model prompt.

    The text fits the token budget; totals go to stderr.

    \b
    Example:
      toolmesh tools surface 'plan a journey' --budget 2000
    """
    from toolmesh.registry.v1 import discovery_service_pb2 as pb
    from toolmesh.registry.v1.discovery_service_pb2_grpc import DiscoveryServiceStub

    from toolmesh_sdk.cli.views.documents import message_to_dict

    request = pb.CompileSurfaceRequest(
        task=task,
        capabilities=capability or (),
        token_budget=budget,
        tokenizer=tokenizer,
        filter=pb.SearchFilter(min_trust=min_trust),
        context=pb.SurfaceContext(model=model),
        scope="command line",
    )
    with as_caller(target) as transport:
        stub = DiscoveryServiceStub(transport.channel)
        response = transport.unary(stub.CompileSurface, request, None, repeatable=True)
    if as_json:
        output.print_json(message_to_dict(response))
    elif response.HasField("surface"):
        _print_surface(response.surface)
    else:
        small = response.budget_too_small
        output.err().print(
            f"A budget of {small.token_budget} tokens is too small; at least {small.required_tokens} are needed."
        )
        raise typer.Exit(1)


@report_errors
@add_target_options()
def schema(
    tools: Annotated[
        list[str],
        typer.Argument(metavar="TOOL", help="Tools, or versions such as echo@1.0.0.", autocompletion=complete_tool),
    ],
    detail: Annotated[bool, typer.Option("--detail", help="Include full schemas and examples.")] = False,
    tokenizer: Tokenizer = "",
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Print the schemas and digests of tools.

    A call of a deferred version needs its digest (`call --digest`). The word `manifest` instead of a tool prints the
    JSON Schema of manifests, for editors; it needs no mesh.

    \b
    Examples:
      toolmesh tools schema echo@1.0.0
      toolmesh tools schema manifest > manifest.schema.json
    """
    if tools == [_MANIFEST]:
        from toolmesh_sdk.manifests.json_schema import manifest_schema

        output.print_json(manifest_schema())
        return
    from toolmesh.registry.v1 import discovery_service_pb2 as pb
    from toolmesh.registry.v1.discovery_service_pb2_grpc import DiscoveryServiceStub

    from toolmesh_sdk.cli.views.documents import enum_label, message_to_dict

    request = pb.GetToolSchemasRequest(
        tools=[tool_or_version(tool) for tool in tools],
        tier=pb.SURFACE_TIER_DETAIL if detail else pb.SURFACE_TIER_SCHEMA,
        tokenizer=tokenizer,
    )
    with as_caller(target) as transport:
        stub = DiscoveryServiceStub(transport.channel)
        response = transport.unary(stub.GetToolSchemas, request, None, repeatable=True)
    if as_json:
        output.print_json(message_to_dict(response))
        return
    for each in response.schemas:
        output.err().print(
            output.text((short_name(each.version), "bold"), f"  {each.digest}  {each.block.tokens} tokens")
        )
        sys.stdout.write(each.block.text)
    for left in response.unloaded:
        reason = enum_label(pb.UnloadedReason.DESCRIPTOR, left.reason)
        output.err().print(output.text(f"{short_name(left.tool)}: {reason}"))
    if not response.schemas:
        raise typer.Exit(1)


def _ending(tool: pb.FoundTool) -> str:
    """Return the remark about a deprecated version; empty for another one."""
    if not tool.HasField("deprecation"):
        return ""
    notice = tool.deprecation
    until = f" until {notice.sunset_time.ToDatetime():%Y-%m-%d}" if notice.HasField("sunset_time") else ""
    return f" (deprecated{until}{f', use {short_name(notice.successor)}' if notice.successor else ''})"


def _print_results(response: pb.SearchToolsResponse, *, explain: bool) -> None:
    from toolmesh.registry.v1 import tool_manifest_pb2

    from toolmesh_sdk.cli.views.documents import enum_label

    effects = tool_manifest_pb2.MutationClass.DESCRIPTOR
    rows = []
    for tool in response.tools:
        score = tool.score
        remarks = f"{_REMARKS.get(tool.usability, '')}{' (no runner)' if tool.no_runner else ''}{_ending(tool)}"
        title = tool.title + remarks + look_alike_remark(tool.look_alikes)
        shown = (short_name(tool.version), f"{score.score:.2f}", enum_label(effects, tool.mutation_class), title)
        rows.append((*shown, _explain_score(score)) if explain else shown)
    headings = ("TOOL", "SCORE", "EFFECT", "TITLE")
    output.print_table((*headings, "WHY") if explain else headings, rows)
    if explain:
        removed = ", ".join(f"{effect.filter} {effect.removed}" for effect in response.filter_effects)
        remark = f"{response.total_candidates} candidates, {response.total_filtered} passed the filters" + (
            f" (removed: {removed})" if removed else ""
        )
        output.err().print(output.text(remark))
    _print_remarks(response)


def _explain_score(score: pb.ToolScore) -> str:
    parts = [
        f"0.4*trust {score.trust:.2f} + 0.3*relevance {score.relevance:.2f}",
        f"+ 0.2*latency {score.latency:.2f} + 0.1*cost {score.cost:.2f};",
        "named" if score.exact else f"words {score.lexical:.2f}{' (all)' if score.all_words else ''}",
        f"meaning {score.semantic:.2f}",
    ]
    return " ".join([*parts, f"capability {score.capability:.2f}"] if score.capability else parts)


def _print_remarks(response: pb.SearchToolsResponse) -> None:
    from toolmesh.registry.v1 import discovery_service_pb2 as pb

    if response.semantic_use == pb.SEMANTIC_USE_UNAVAILABLE:
        output.err().print("Only keywords were compared: the embedding model did not respond.")
    elif response.semantic_pending:
        output.err().print(f"The embeddings of {response.semantic_pending} tools are not computed yet.")


def _print_no_match(response: pb.SearchToolsResponse) -> None:
    from toolmesh.registry.v1 import discovery_service_pb2 as pb

    from toolmesh_sdk.cli.views.documents import enum_label

    reason = enum_label(pb.NoMatchReason.DESCRIPTOR, response.no_match.reason).replace("_", " ")
    output.err().print(output.text(f"No tools match: {reason}."))
    for effect in response.filter_effects:
        output.err().print(output.text(f"  {effect.filter} removed {effect.removed}"))
    if response.no_match.nearest:
        output.err().print(output.text(f"  nearest: {', '.join(response.no_match.nearest)}"))
    _print_remarks(response)


def _print_surface(response: pb.ToolSurface) -> None:
    from toolmesh.registry.v1 import discovery_service_pb2 as pb

    from toolmesh_sdk.cli.views.documents import enum_label

    sys.stdout.write("".join(block.text for block in response.blocks))
    sys.stdout.flush()
    for tool in response.excluded_tools:
        if tool.reason == pb.SURFACE_REASON_NO_RUNNER:
            output.err().print(output.text(f"{short_name(tool.tool)}: no runner: {tool.detail}"))
    totals = response.totals
    steps = " ".join(enum_label(pb.SurfaceStep.DESCRIPTOR, step) for step in response.surface_reason)
    output.err().print(
        output.text(
            (f"{response.token_count} of {response.token_budget} tokens ({response.tokenizer}); ", "dim"),
            (f"{totals.loaded} schemas, {totals.indexed} named, {totals.usable} usable, ", "dim"),
            (f"{totals.blocked} blocked, {totals.excluded} excluded{'; ' + steps if steps else ''}", "dim"),
        )
    )
