"""`toolmesh pack lock`: brings third-party packages into a pack, by hash."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from toolmesh_sdk.cli.exits import FAILED
from toolmesh_sdk.cli.views import output

from authoring.pack_commands.problems import Pack, shown_path


def lock(
    pack: Pack = Path(),
    add: Annotated[
        list[str] | None,
        typer.Option("--add", metavar="REQUIREMENT", help="Such as requests or httpx>=0.28; repeatable."),
    ] = None,
) -> None:
    """Lock the packages of a pack and download their wheels.

    requirements.txt names the packages; the lock names each file of them by hash, and wheels/ has those for this
    interpreter. Executors install them once, read-only, without network. Commit the three with the code.

    \b
    Example:
      toolmesh pack lock greeter --add httpx
    """
    from authoring.packs.lock_packages import REQUIREMENTS, LockError, add_requirements, lock_packages

    if add:
        add_requirements(pack, add)
    if not (pack / REQUIREMENTS).is_file():
        raise typer.BadParameter(f"there is no {REQUIREMENTS}; name a package with --add", param_hint="PACK")
    try:
        wheels = lock_packages(pack)
    except LockError as error:
        output.err().print(output.text(f"{shown_path((pack / REQUIREMENTS).resolve())}: {error}"))
        raise typer.Exit(FAILED) from None
    for name in wheels:
        output.out().print(output.text(name))
