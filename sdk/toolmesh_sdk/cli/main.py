"""The `toolmesh` program: its own commands, and those that plugins add."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated

import typer

from toolmesh_sdk.cli.commands import approvals, context, keys, mcp, namespace, policy, token, usage
from toolmesh_sdk.cli.commands.audit import records as audit
from toolmesh_sdk.cli.commands.calls import callbacks, jobs
from toolmesh_sdk.cli.commands.calls.call import call
from toolmesh_sdk.cli.commands.calls.group import group
from toolmesh_sdk.cli.commands.calls.result import result
from toolmesh_sdk.cli.commands.completion import VARIABLE, completion
from toolmesh_sdk.cli.commands.doctor import doctor_for
from toolmesh_sdk.cli.commands.tools import catalog as tools
from toolmesh_sdk.cli.commands.upstreams import connect, upstreams
from toolmesh_sdk.cli.commands.version import installed_version, version
from toolmesh_sdk.cli.exits import EPILOG, FAILED, USAGE
from toolmesh_sdk.cli.failures import report_unexpected
from toolmesh_sdk.cli.plugins import load_plugins


def build(plugins: Iterable[EntryPoint] | None = None) -> typer.Typer:
    """Build the application with the commands of every plugin that loads; None loads the installed ones."""
    app = typer.Typer(
        name="toolmesh",
        help="Call tools through a governed mesh, and inspect the results.",
        epilog=EPILOG,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        # Plain help and usage errors suit pipes and narrow terminals, and do not load Rich.
        rich_markup_mode=None,
        add_completion=False,
    )
    app.callback()(_root)
    app.command()(call)
    app.command()(group)
    app.command()(result)
    app.add_typer(jobs.app, name="jobs")
    app.add_typer(callbacks.app, name="callbacks")
    app.add_typer(approvals.app, name="approvals")
    app.add_typer(keys.app, name="keys")
    app.add_typer(tools.app, name="tools")
    app.add_typer(connect.app, name="connect")
    app.add_typer(upstreams.app, name="upstreams")
    app.add_typer(mcp.app, name="mcp")
    app.add_typer(namespace.app, name="namespace")
    app.add_typer(token.app, name="token")
    app.add_typer(policy.app, name="policy")
    app.add_typer(audit.app, name="audit")
    app.add_typer(usage.app, name="usage")
    loaded = load_plugins(app, plugins)
    app.add_typer(context.app, name="context")
    app.command("doctor")(doctor_for(loaded))
    app.command()(completion)
    app.command()(version)
    return app


def run() -> None:
    """Run the command line. An unexpected exception is one line on stderr; TOOLMESH_DEBUG=1 shows its traceback."""
    _open_streams()
    # gRPC's own log lines only repeat the error.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    if VARIABLE in os.environ:
        _serve_completion()
    try:
        build()(prog_name="toolmesh")
    except UnicodeEncodeError:
        # Output is never the cause: both streams accept any character.
        sys.stderr.write("Error: an argument is not UTF-8 text\n")
        sys.exit(USAGE)
    except Exception as error:
        report_unexpected(error)
        sys.exit(FAILED)


def _serve_completion() -> None:
    """Let Typer answer a shell that completes a command line."""
    from typer._completion_classes import completion_init

    completion_init()


def _open_streams() -> None:
    """Make stdout and stderr accept any character, lone surrogates included, and replace them if they are closed."""
    sys.stdout, sys.stderr = (
        Path(os.devnull).open("w") if stream is None else stream  # noqa: SIM115  (open until the program ends)
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
    """Declare the options of the program itself."""


if __name__ == "__main__":
    run()
