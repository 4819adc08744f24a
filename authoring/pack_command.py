"""`toolmesh pack build`: writes the manifests of a pack from its typed functions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from toolmesh_sdk.cli.exits import FAILED
from toolmesh_sdk.cli.views import output

app = typer.Typer(help="Build packs of tools from typed functions.", no_args_is_help=True)


@app.callback()
def _pack() -> None:
    """Build packs of tools from typed functions."""


@app.command()
def build(
    pack: Annotated[Path, typer.Argument(metavar="PACK", help="The folder of the pack.")] = Path(),
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail if a manifest would change.")] = False,
) -> None:
    """Write the manifests of a pack's @tool functions.

    The code of the pack is imported. All problems are reported at once with file and line, and then nothing is written.

    \b
    Examples:
      toolmesh pack build examples/packs/wordkit --check
    """
    from authoring.packs.pack_folder import derive_pack

    derived = derive_pack(pack)
    for problem in derived.problems:
        output.err().print(output.text(f"{problem.place}: {problem.message}"))
    if derived.problems:
        raise typer.Exit(FAILED)
    stale = 0
    for tool_id, manifest in derived.manifests.items():
        path = pack / "manifests" / f"{tool_id}.json"
        text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        output.out().print(output.text(f"{path} {'is stale' if check else 'written'}"))
    if check and stale:
        raise typer.Exit(FAILED)
