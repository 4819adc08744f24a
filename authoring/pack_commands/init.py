"""`toolmesh pack init`: writes a pack that runs at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from toolmesh_sdk.cli.views import output

from authoring.pack_commands.problems import shown_path


def init(
    folder: Annotated[Path, typer.Argument(metavar="NAME", help="The name of the pack, or the path of its folder.")],
) -> None:
    """Write a pack with one tool, ready to run.

    The folder must not exist. Its name is the pack's: lower case letters, digits and underscores.

    \b
    Example:
      toolmesh pack init greeter
    """
    from authoring.packs.init_pack import PackNameError, init_pack

    try:
        written = init_pack(folder)
    except PackNameError as error:
        raise typer.BadParameter(str(error), param_hint="NAME") from None
    except OSError as error:
        raise typer.BadParameter(f"{folder}: {error.strerror}", param_hint="NAME") from None
    for path in written:
        output.out().print(output.text(f"{shown_path(path)} written"))
    output.out().print(output.text((f"Next: toolmesh pack dev {folder}", "dim")))
