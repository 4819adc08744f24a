"""`toolmesh pack check`: finds every problem of a pack without a mesh."""

from __future__ import annotations

from pathlib import Path

import typer
from toolmesh_sdk.cli.exits import FAILED
from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.views import output

from authoring.pack_commands.problems import Pack, print_problems, print_secrets


def check(pack: Pack = Path(), as_json: options.Json = False) -> None:
    """Check a pack offline, all problems at once.

    Checks the code (imported here), the imports that the sandbox will not have, pack.json, and the manifests, derived
    and written by hand. Each problem has its file and line. With --json: {"pack", "tools": [...], "problems": [...],
    "secrets": {...}}, the last with the command that sets each secret in a local mesh.

    \b
    Examples:
      toolmesh pack check examples/packs/textkit
      toolmesh pack check examples/packs/wordkit --json
    """
    from authoring.manifests.needed_secrets import needed_secrets
    from authoring.packs.check_pack import check_pack

    checked = check_pack(pack)
    if as_json:
        problems = [problem.to_dict() for problem in checked.problems]
        document = {"pack": checked.name, "tools": sorted(checked.manifests), "problems": problems}
        output.print_json({**document, "secrets": needed_secrets(checked.manifests.values())})
    else:
        print_problems(checked.problems)
        if not checked.problems:
            output.out().print(output.text(f"{checked.name}: ok, {', '.join(sorted(checked.manifests))}"))
            print_secrets(needed_secrets(checked.manifests.values()))
    if checked.problems:
        raise typer.Exit(FAILED)
