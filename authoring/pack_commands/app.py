"""The group `toolmesh pack`: its commands in the order in which an author needs them."""

from __future__ import annotations

import typer

from authoring.pack_commands.build import build
from authoring.pack_commands.check import check
from authoring.pack_commands.dev import dev
from authoring.pack_commands.init import init
from authoring.pack_commands.lock import lock
from authoring.pack_commands.publish import publish
from authoring.pack_commands.test import try_tools

HELP = "Write, run and check packs of tools."

app = typer.Typer(help=HELP, no_args_is_help=True)
for command in (init, dev, check):
    app.command()(command)
app.command("test")(try_tools)
for command in (build, lock, publish):
    app.command()(command)
