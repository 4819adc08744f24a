"""`toolmesh tools test`: tries the examples of a registered tool where nothing can change by it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer

from toolmesh_sdk.cli.exits import FAILED
from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs.call_options import Tool
from toolmesh_sdk.cli.inputs.target import Target, open_client
from toolmesh_sdk.cli.inputs.target_options import add_target_options
from toolmesh_sdk.cli.tool_names import short_name
from toolmesh_sdk.cli.views import output
from toolmesh_sdk.errors import ToolmeshError

if TYPE_CHECKING:
    from toolmesh.registry.v1 import tool_manifest_pb2

    from toolmesh_sdk.client import Client


@dataclass(frozen=True, slots=True)
class TriedExample:
    """What became of one example: `called`, `previewed` or `skipped`, and what is wrong with it."""

    title: str
    outcome: str
    problem: str = ""


def add_to(app: typer.Typer) -> None:
    """Add the command to a group."""
    app.command("test")(try_examples)


@report_errors
@add_target_options()
def try_examples(
    tool: Tool,
    version: Annotated[str, typer.Option(help="A version constraint; default: the latest version.")] = "",
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Try the examples of a tool, without effects.

    A tool that only reads is called. A tool that writes is previewed if it has a dry run; without one its examples
    are skipped, and nothing is sent. An example that fails, or whose result is not the one it shows, is a problem,
    and the exit code is 1. These are calls of the token: they are authorized, limited and recorded like any other.

    \b
    Example:
      toolmesh tools test echo
    """
    with open_client(target) as client:
        found = client.resolve_tool(tool, version)
        number = found.manifest.version
        tried = [_try(client, tool, number, found.manifest, example) for example in found.manifest.input.examples]
    if as_json:
        output.print_json({"version": found.name, "examples": [asdict(each) for each in tried]})
    else:
        _print(short_name(found.name), tried)
    if any(each.problem for each in tried):
        raise typer.Exit(FAILED)


def _try(
    client: Client,
    tool: str,
    version: str,
    manifest: tool_manifest_pb2.ToolManifest,
    example: tool_manifest_pb2.ContractExample,
) -> TriedExample:
    from toolmesh.registry.v1 import tool_manifest_pb2 as pb

    from toolmesh_sdk._wire.payload import parse

    arguments: Any = parse(example.arguments)
    reads = manifest.mutation_class == pb.MUTATION_CLASS_READ_ONLY
    if not reads and not manifest.dry_run_supported:
        return TriedExample(example.title, "skipped")
    outcome = "called" if reads else "previewed"
    try:
        if reads:
            keyed = manifest.idempotency.mode == pb.IDEMPOTENCY_MODE_KEY_REQUIRED
            key = str(uuid4()) if keyed else None
            result = client.content(client.call(tool, arguments, version=version, idempotency_key=key))
        else:
            # A preview that predicts no result says nothing about the one that is shown.
            result = client.preview(tool, arguments, version=version).predicted_result
    except ToolmeshError as error:
        if not error.answered:
            raise
        return TriedExample(example.title, outcome, f"failed with {error.reason.name}: {error.message}")
    differs = bool(example.result) and (reads or result is not None) and result != parse(example.result)
    return TriedExample(example.title, outcome, "has another result than the example shows" if differs else "")


def _print(version: str, tried: list[TriedExample]) -> None:
    if not tried:
        output.err().print(output.text(f"{version} has no examples"))
    for index, each in enumerate(tried, 1):
        name = f"{version}, example {index}" + (f" ({each.title})" if each.title else "")
        if each.problem:
            output.err().print(output.text(f"{name}, {each.outcome}: {each.problem}"))
        else:
            skipped = "skipped: it writes and has no dry run" if each.outcome == "skipped" else f"{each.outcome}, ok"
            output.out().print(output.text(f"{name}: {skipped}"))
