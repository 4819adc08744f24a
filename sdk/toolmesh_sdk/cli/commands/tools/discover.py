"""`toolmesh tools search` and its siblings: find tools, and see what a model would be shown of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from toolmesh_sdk.cli.failures import reported
from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs.admin_connection import as_caller, short, tool_or_version
from toolmesh_sdk.cli.inputs.target import Place
from toolmesh_sdk.cli.views import output

if TYPE_CHECKING:
    from toolmesh.registry.v1 import discovery_service_pb2 as pb

MinTrust = Annotated[float, typer.Option(min=0.0, max=1.0, help="The least trust, 0 to 1.")]
Tokenizer = Annotated[str, typer.Option(help="How tokens are counted: o200k_base or cl100k_base.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands to a group."""
    for command in (search, surface, schema):
        app.command()(command)


@reported
def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A name, keywords or a sentence.")] = "",
    capability: Annotated[list[str] | None, typer.Option(help="A capability that is wanted; repeatable.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only tools with this tag; repeatable.")] = None,
    namespace: Annotated[list[str] | None, typer.Option(help="Only tools of this namespace; repeatable.")] = None,
    min_trust: MinTrust = 0.0,
    read_only: Annotated[bool, typer.Option("--read-only", help="Only tools that change nothing.")] = False,
    version: Annotated[str, typer.Option(help="Only tools with a version that this constraint accepts.")] = "",
    keywords: Annotated[bool, typer.Option("--keywords", help="Compare words alone, not meaning.")] = False,
    forbidden: Annotated[bool, typer.Option("--forbidden", help="Find also what the token does not cover.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=100, help="How many at most.")] = 10,
    explain: Annotated[bool, typer.Option("--explain", help="Show what each rank came from.")] = False,
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Find tools by name, word, capability or meaning, the best first."""
    from toolmesh.registry.v1 import discovery_service_pb2 as pb
    from toolmesh.registry.v1 import tool_manifest_pb2
    from toolmesh.registry.v1.discovery_service_pb2_grpc import DiscoveryServiceStub

    from toolmesh_sdk.cli.views.documents import document

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
    with as_caller(Place(url=url, token=token, state=state, ca=ca), timeout) as transport:
        stub = DiscoveryServiceStub(transport.channel)
        found = transport.unary(stub.SearchTools, request, None, repeatable=True)
    if as_json:
        output.print_json(document(found))
    elif found.tools:
        _print_found(found, explain=explain)
    else:
        _print_no_match(found)


@reported
def surface(
    task: Annotated[str, typer.Argument(metavar="TASK", help="What the model is to do.")] = "",
    budget: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many tokens the text may have.")] = 2000,
    capability: Annotated[list[str] | None, typer.Option(help="A capability that is wanted; repeatable.")] = None,
    tokenizer: Tokenizer = "",
    model: Annotated[str, typer.Option(help="The model that the surface is for.")] = "",
    min_trust: MinTrust = 0.0,
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Print what a model would be shown of the tools for a task; facts about it go to stderr."""
    from toolmesh.registry.v1 import discovery_service_pb2 as pb
    from toolmesh.registry.v1.discovery_service_pb2_grpc import DiscoveryServiceStub

    from toolmesh_sdk.cli.views.documents import document

    request = pb.CompileSurfaceRequest(
        task=task,
        capabilities=capability or (),
        token_budget=budget,
        tokenizer=tokenizer,
        filter=pb.SearchFilter(min_trust=min_trust),
        context=pb.SurfaceContext(model=model),
        scope="command line",
    )
    with as_caller(Place(url=url, token=token, state=state, ca=ca), timeout) as transport:
        stub = DiscoveryServiceStub(transport.channel)
        found = transport.unary(stub.CompileSurface, request, None, repeatable=True)
    if as_json:
        output.print_json(document(found))
    elif found.HasField("surface"):
        _print_surface(found.surface)
    else:
        small = found.budget_too_small
        output.err().print(f"A budget of {small.token_budget} holds nothing; {small.required_tokens} tokens would do.")
        raise typer.Exit(1)


@reported
def schema(
    tools: Annotated[list[str], typer.Argument(metavar="TOOL...", help="Tools, or versions such as echo@1.0.0.")],
    detail: Annotated[bool, typer.Option("--detail", help="Whole schemas and examples.")] = False,
    tokenizer: Tokenizer = "",
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Load the schemas of tools, with the digests that a call of a deferred one must carry."""
    from toolmesh.registry.v1 import discovery_service_pb2 as pb
    from toolmesh.registry.v1.discovery_service_pb2_grpc import DiscoveryServiceStub

    from toolmesh_sdk.cli.views.documents import document, word

    request = pb.GetToolSchemasRequest(
        tools=[tool_or_version(tool) for tool in tools],
        tier=pb.SURFACE_TIER_DETAIL if detail else pb.SURFACE_TIER_SCHEMA,
        tokenizer=tokenizer,
    )
    with as_caller(Place(url=url, token=token, state=state, ca=ca), timeout) as transport:
        stub = DiscoveryServiceStub(transport.channel)
        found = transport.unary(stub.GetToolSchemas, request, None, repeatable=True)
    if as_json:
        output.print_json(document(found))
        return
    for each in found.schemas:
        output.err().print(output.text((short(each.version), "bold"), f"  {each.digest}  {each.block.tokens} tokens"))
        sys.stdout.write(each.block.text)
    for left in found.unloaded:
        reason = word(pb.UnloadedReason.DESCRIPTOR, left.reason)
        output.err().print(output.text(f"{short(left.tool)}: {reason}"))
    if not found.schemas:
        raise typer.Exit(1)


def _print_found(found: pb.SearchToolsResponse, *, explain: bool) -> None:
    from toolmesh.registry.v1 import tool_manifest_pb2

    from toolmesh_sdk.cli.views.documents import word

    effects = tool_manifest_pb2.MutationClass.DESCRIPTOR
    rows = []
    for tool in found.tools:
        score = tool.score
        shown = (short(tool.version), f"{score.score:.2f}", word(effects, tool.mutation_class), tool.title)
        rows.append((*shown, _explained(score)) if explain else shown)
    headings = ("TOOL", "SCORE", "EFFECT", "TITLE")
    output.print_table((*headings, "WHY") if explain else headings, rows)
    if explain:
        removed = ", ".join(f"{effect.filter} {effect.removed}" for effect in found.filter_effects)
        remark = f"{found.total_candidates} fit, {found.total_filtered} passed" + (
            f" (removed: {removed})" if removed else ""
        )
        output.err().print(output.text(remark))
    _print_remarks(found)


def _explained(score: pb.ToolScore) -> str:
    parts = [
        f"0.4*trust {score.trust:.2f} + 0.3*relevance {score.relevance:.2f}",
        f"+ 0.2*latency {score.latency:.2f} + 0.1*cost {score.cost:.2f};",
        "named" if score.exact else f"words {score.lexical:.2f}{' (all)' if score.all_words else ''}",
        f"meaning {score.semantic:.2f}",
    ]
    return " ".join([*parts, f"capability {score.capability:.2f}"] if score.capability else parts)


def _print_remarks(found: pb.SearchToolsResponse) -> None:
    from toolmesh.registry.v1 import discovery_service_pb2 as pb

    if found.semantic_use == pb.SEMANTIC_USE_UNAVAILABLE:
        output.err().print("Words alone were compared: the language model did not answer.")
    elif found.semantic_pending:
        output.err().print(f"The meaning of {found.semantic_pending} tools is still being worked out.")


def _print_no_match(found: pb.SearchToolsResponse) -> None:
    from toolmesh.registry.v1 import discovery_service_pb2 as pb

    from toolmesh_sdk.cli.views.documents import word

    reason = word(pb.NoMatchReason.DESCRIPTOR, found.no_match.reason).replace("_", " ")
    output.err().print(output.text(f"No tools match: {reason}."))
    for effect in found.filter_effects:
        output.err().print(output.text(f"  {effect.filter} removed {effect.removed}"))
    if found.no_match.nearest:
        output.err().print(output.text(f"  nearest: {', '.join(found.no_match.nearest)}"))
    _print_remarks(found)


def _print_surface(found: pb.ToolSurface) -> None:
    from toolmesh.registry.v1 import discovery_service_pb2 as pb

    from toolmesh_sdk.cli.views.documents import word

    sys.stdout.write("".join(block.text for block in found.blocks))
    sys.stdout.flush()
    totals = found.totals
    steps = " ".join(word(pb.SurfaceStep.DESCRIPTOR, step) for step in found.surface_reason)
    output.err().print(
        output.text(
            (f"{found.token_count} of {found.token_budget} tokens ({found.tokenizer}); ", "dim"),
            (f"{totals.loaded} schemas, {totals.indexed} named, {totals.usable} usable, ", "dim"),
            (f"{totals.blocked} blocked, {totals.excluded} excluded{'; ' + steps if steps else ''}", "dim"),
        )
    )
