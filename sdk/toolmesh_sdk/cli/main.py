"""The `toolmesh` command: its own commands, and those that other packages register."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib.metadata import EntryPoint
from typing import Annotated

import typer

from toolmesh_sdk.cli import audit, namespace, policy, token, tools, usage
from toolmesh_sdk.cli.call import call
from toolmesh_sdk.cli.doctor import doctor_for
from toolmesh_sdk.cli.exits import EPILOG, FAILED
from toolmesh_sdk.cli.group import group
from toolmesh_sdk.cli.plugins import load_plugins
from toolmesh_sdk.cli.result import result
from toolmesh_sdk.cli.version import installed_version, version


def build(plugins: Iterable[EntryPoint] | None = None) -> typer.Typer:
    """Return the application with the commands of every plugin that loads; None means the installed ones."""
    app = typer.Typer(
        name="toolmesh",
        help="Call tools through a governed mesh, and see what happened.",
        epilog=EPILOG,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        # Plain help and usage errors: they survive pipes and narrow terminals, and come without loading Rich.
        rich_markup_mode=None,
        add_completion=False,
    )
    app.callback()(_root)
    app.command()(call)
    app.command()(group)
    app.command()(result)
    app.add_typer(tools.app, name="tools")
    app.add_typer(namespace.app, name="namespace")
    app.add_typer(token.app, name="token")
    app.add_typer(policy.app, name="policy")
    app.add_typer(audit.app, name="audit")
    app.add_typer(usage.app, name="usage")
    loaded = load_plugins(app, plugins)
    app.command("doctor")(doctor_for(loaded))
    app.command()(version)
    return app


def run() -> None:
    """Run the command line. What nobody foresaw is one line on stderr; TOOLMESH_DEBUG=1 shows where it came from."""
    for stream in (sys.stdout, sys.stderr):
        if not (stream.encoding or "").lower().startswith("utf"):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    # gRPC's own log lines tell a person nothing that the failure does not.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    try:
        build()(prog_name="toolmesh")
    except Exception as error:
        if os.environ.get("TOOLMESH_DEBUG"):
            raise
        sys.stderr.write(f"toolmesh failed: {type(error).__name__}: {error} (TOOLMESH_DEBUG=1 shows more)\n")
        sys.exit(FAILED)


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"toolmesh {installed_version()}\n")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version.")
    ] = False,
) -> None:
    """Hold the options of the program itself."""


if __name__ == "__main__":
    run()
