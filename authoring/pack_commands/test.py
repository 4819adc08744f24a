"""`toolmesh pack test`: tries the tools of a pack in the real sandboxes, without a mesh."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from toolmesh_sdk.cli.exits import FAILED
from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.views import output

from authoring.pack_commands.problems import Pack, print_problems

if TYPE_CHECKING:
    from authoring.packs.trials.try_pack import TriedTool


def try_tools(
    pack: Pack = Path(),
    tool: Annotated[list[str] | None, typer.Option("--tool", metavar="ID", help="Only this tool; repeatable.")] = None,
    cases: Annotated[int, typer.Option(min=0, max=10_000, help="Calls made from the schema of each tool.")] = 25,
    network: Annotated[bool, typer.Option("--network", help="Also call tools that reach hosts.")] = False,
    secrets: Annotated[
        Path | None,
        typer.Option("--secrets", exists=True, dir_okay=False, help='Values of secrets: {"weather": "..."}.'),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Test a pack in its real sandboxes, without a mesh.

    Runs the examples, which must return what they say, and calls made from the input schemas. A tool must not crash,
    hang, raise, break its output schema or change what it does not declare; it may refuse with ToolFailure. Arguments
    that show a defect are made as small as possible. Volumes are empty, and changes are discarded. Secrets
    have made-up values, or those of a JSON file.

    \b
    Examples:
      toolmesh pack test examples/packs/wordkit
      toolmesh pack test examples/packs/wordkit --cases 200 --json
    """
    from authoring.packs.check_pack import check_pack
    from authoring.packs.trials.try_pack import try_pack

    checked = check_pack(pack, require_built=False)
    print_problems(checked.problems)
    if checked.problems:
        raise typer.Exit(FAILED)
    if unknown := set(tool or ()) - checked.manifests.keys():
        raise typer.BadParameter(f"the pack has no tool {sorted(unknown)[0]}", param_hint="--tool")
    values = _values_of(secrets)
    tried = try_pack(pack.resolve(), checked, cases=cases, tools=tool or (), network=network, secrets=values)
    if as_json:
        output.print_json({"pack": checked.name, "tools": [_document(each) for each in tried]})
    else:
        for each in tried:
            _print(each)
    if any(each.problems for each in tried):
        raise typer.Exit(FAILED)


def _values_of(file: Path | None) -> dict[str, str]:
    if file is None:
        return {}
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        values = None
    if not isinstance(values, dict) or not all(isinstance(each, str) and each for each in values.values()):
        raise typer.BadParameter('is no JSON such as {"weather": "a test key"}', param_hint="--secrets")
    return values


def _document(tried: TriedTool) -> dict[str, object]:
    return {
        "tool": tried.tool_id,
        "examples": tried.examples,
        "cases": tried.cases,
        "refused": tried.refused,
        "skipped": tried.skipped,
        "problems": tried.problems,
    }


def _print(tried: TriedTool) -> None:
    for problem in tried.problems:
        output.err().print(output.text(f"{tried.tool_id}: {problem}"))
    if not tried.problems:
        counts = f"{tried.examples} examples, {tried.cases} made calls, {tried.refused} of them refused"
        output.out().print(output.text(f"{tried.tool_id}: {'ok, ' + counts if not tried.skipped else tried.skipped}"))
