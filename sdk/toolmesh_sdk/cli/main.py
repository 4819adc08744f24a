"""The `toolmesh` command: its own commands, and those that other packages register."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated

import typer

from toolmesh_sdk.cli.commands import namespace, policy, token, usage
from toolmesh_sdk.cli.commands.audit import records as audit
from toolmesh_sdk.cli.commands.call import call
from toolmesh_sdk.cli.commands.doctor import doctor_for
from toolmesh_sdk.cli.commands.group import group
from toolmesh_sdk.cli.commands.result import result
from toolmesh_sdk.cli.commands.tools import catalog as tools
from toolmesh_sdk.cli.commands.version import installed_version, version
from toolmesh_sdk.cli.exits import EPILOG, FAILED, USAGE
from toolmesh_sdk.cli.failures import report_unforeseen
from toolmesh_sdk.cli.plugins import load_plugins


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
    _open_streams()
    # gRPC's own log lines tell a person nothing that the failure does not.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    try:
        build()(prog_name="toolmesh")
    except UnicodeEncodeError:
        # What is printed is never the reason: the streams take anything.
        sys.stderr.write("Error: an argument is not text in UTF-8\n")
        sys.exit(USAGE)
    except Exception as error:
        report_unforeseen(error)
        sys.exit(FAILED)


def _open_streams() -> None:
    """Have both streams take any character, those that UTF-8 has no form for included, and have them at all where they were closed."""
    sys.stdout, sys.stderr = (
        Path(os.devnull).open("w") if stream is None else stream  # noqa: SIM115  (for as long as the program lasts)
        for stream in (sys.stdout, sys.stderr)
    )
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


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
