"""`toolmesh tools check`: finds all problems of manifests without a mesh."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from toolmesh_sdk.cli.exits import FAILED
from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs.json_input import read_json_file
from toolmesh_sdk.cli.inputs.manifest_files import manifest_files
from toolmesh_sdk.cli.views import output

if TYPE_CHECKING:
    from authoring.manifests.check_manifest import Problem


def check(
    manifests: Annotated[
        list[Path], typer.Argument(metavar="FILE|FOLDER", help="JSON files with one manifest each, or folders of them.")
    ],
    as_json: options.Json = False,
) -> None:
    """Check manifests offline, all problems at once.

    The rules are the registry's. Each problem says what to write; with --json "fix" is a JSON merge patch that does it.
    Only the registry knows whether a version fits the registered ones and whether an executor can run the tool.

    \b
    Examples:
      toolmesh tools check examples/packs/textkit/manifests
      toolmesh tools check weather.json --json
    """
    from authoring.manifests.check_manifest import check_manifest

    problems = {path: check_manifest(read_json_file(path, "FILE|FOLDER")) for path in manifest_files(manifests)}
    if as_json:
        output.print_json({"files": [_to_dict(path, found) for path, found in problems.items()]})
    else:
        for path, found in problems.items():
            _print(path, found)
    if any(problem.blocks for found in problems.values() for problem in found):
        raise typer.Exit(FAILED)


def _to_dict(path: Path, problems: list[Problem]) -> dict[str, Any]:
    return {"file": str(path), "problems": [problem.to_dict() for problem in problems]}


def _print(path: Path, problems: list[Problem]) -> None:
    if not problems:
        output.out().print(output.text(f"{path}: ok"))
    for problem in problems:
        kind = "" if problem.blocks else "remark: "
        place = f"{path} {problem.path or '/'}: {kind}{problem.message} [{problem.rule}]"
        output.err().print(output.text((place, "bold" if problem.blocks else "yellow")))
        if problem.advice.text:
            output.err().print(output.text(f"  {problem.advice.text}"))
