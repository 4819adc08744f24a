"""`toolmesh pack lock`: brings third-party packages into a pack, by hash."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from toolmesh_sdk.cli.exits import FAILED
from toolmesh_sdk.cli.views import output

from authoring.pack_commands.problems import Pack, shown_path

if TYPE_CHECKING:
    from authoring.packs.wheel_target import WheelTarget


def lock(
    pack: Pack = Path(),
    add: Annotated[
        list[str] | None,
        typer.Option("--add", metavar="REQUIREMENT", help="Such as requests or httpx>=0.28; repeatable."),
    ] = None,
    python: Annotated[
        list[str] | None,
        typer.Option("--python", metavar="VERSION", help="Only for this one, such as 3.12; repeatable."),
    ] = None,
    platform: Annotated[
        list[str] | None,
        typer.Option("--platform", metavar="NAME", help="Only for this one, such as musllinux_1_2_x86_64; repeatable."),
    ] = None,
) -> None:
    """Lock the packages of a pack and download their wheels.

    requirements.txt names the packages; the lock names each file of them by hash, and wheels/ has those for every
    Python from 3.11 to 3.14 on x86_64 and aarch64 with glibc 2.28 or later. Executors install the ones that fit, once,
    read-only, without network. Commit the three with the code.

    \b
    Examples:
      toolmesh pack lock greeter --add httpx
      toolmesh pack lock greeter --python 3.12 --platform manylinux_2_28_x86_64
    """
    from authoring.packs.lock_packages import REQUIREMENTS, LockError, add_requirements, lock_packages

    targets = _targets(python, platform)
    if add:
        add_requirements(pack, add)
    if not (pack / REQUIREMENTS).is_file():
        raise typer.BadParameter(f"there is no {REQUIREMENTS}; name a package with --add", param_hint="PACK")
    try:
        wheels = lock_packages(pack, targets)
    except LockError as error:
        output.err().print(output.text(f"{shown_path((pack / REQUIREMENTS).resolve())}: {error}"))
        raise typer.Exit(FAILED) from None
    for name in wheels:
        output.out().print(output.text(name))


def _targets(pythons: Sequence[str] | None, platforms: Sequence[str] | None) -> list[WheelTarget]:
    from authoring.packs.wheel_target import PLATFORMS, PYTHONS, WheelTarget

    try:
        return [WheelTarget(python, platform) for platform in platforms or PLATFORMS for python in pythons or PYTHONS]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--python, --platform") from None
