"""Prints problems of packs with file and line, as compilers do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer
from toolmesh_sdk.cli.views import output

from authoring.packs.pack_problem import PackProblem

Pack = Annotated[Path, typer.Argument(metavar="PACK", help="The folder of the pack.")]


def print_problems(problems: Iterable[PackProblem]) -> None:
    """Print a line for each problem, which editors and terminals open at its place."""
    for problem in problems:
        output.err().print(output.text(f"{shown_path(problem.path)}:{problem.line}: {problem.message}"))


def shown_path(path: Path) -> str:
    """Return a path relative to the working folder, where it is below it."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def print_secrets(commands: Mapping[str, str]) -> None:
    """Print the command that sets each secret which the tools of a pack need."""
    for name, command in commands.items():
        output.out().print(output.text(f"needs secret://{name}: {command}"))
