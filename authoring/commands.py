"""The commands for authors of tools, which the command line finds as a plugin."""

from __future__ import annotations

import typer
from toolmesh_sdk.cli.commands.tools.catalog import app as tools

from authoring.check_command import check
from authoring.pack_commands.app import app as pack


def register(app: typer.Typer) -> None:
    """Add the commands to `toolmesh` and to its group `tools`."""
    if not any(command.callback is check for command in tools.registered_commands):
        tools.command()(check)
    app.add_typer(pack, name="pack")
