"""The group `toolmesh pack`: its commands in the order in which an author needs them."""

from __future__ import annotations

import typer

from authoring.pack_commands.build import build
from authoring.pack_commands.check import check
from authoring.pack_commands.dev import dev
from authoring.pack_commands.init import init

HELP = "Write, run and check packs of tools."

app = typer.Typer(help=HELP, no_args_is_help=True)
for command in (init, dev, check, build):
    app.command()(command)
