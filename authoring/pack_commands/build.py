"""`toolmesh pack build`: writes the manifests of a pack from its typed functions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from toolmesh_sdk.cli.exits import FAILED
from toolmesh_sdk.cli.views import output

from authoring.pack_commands.problems import Pack, print_problems, shown_path


def build(
    pack: Pack = Path(),
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail if a manifest would change.")] = False,
) -> None:
    """Write the manifests of a pack's @tool functions.

    The code of the pack is imported. All problems are reported at once with file and line, and then nothing is written.

    \b
    Examples:
      toolmesh pack build examples/packs/wordkit --check
    """
    from authoring.packs.manifest_files import stale_manifests, write_manifests
    from authoring.packs.pack_folder import derive_pack

    derived = derive_pack(pack)
    print_problems(derived.problems)
    if derived.problems:
        raise typer.Exit(FAILED)
    stale = stale_manifests(pack.resolve(), derived.manifests)
    if not check:
        write_manifests(stale)
    for path in stale:
        output.out().print(output.text(f"{shown_path(path)} {'is stale' if check else 'written'}"))
    if check and stale:
        raise typer.Exit(FAILED)
