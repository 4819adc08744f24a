"""The `toolmesh` program: its own commands, and those that plugins add."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, Any

import typer

from toolmesh_sdk.cli.commands.completion import VARIABLE
from toolmesh_sdk.cli.exits import EPILOG, FAILED, USAGE
from toolmesh_sdk.cli.failures import report_unexpected
from toolmesh_sdk.cli.plugins import load_plugins

# The module of each command and group, in the order of `--help`.
_OWN: Mapping[str, str] = {
    "call": "toolmesh_sdk.cli.commands.calls.call",
    "group": "toolmesh_sdk.cli.commands.calls.group",
    "result": "toolmesh_sdk.cli.commands.calls.result",
    "jobs": "toolmesh_sdk.cli.commands.calls.jobs",
    "callbacks": "toolmesh_sdk.cli.commands.calls.callbacks",
    "approvals": "toolmesh_sdk.cli.commands.approvals",
    "keys": "toolmesh_sdk.cli.commands.keys",
    "tools": "toolmesh_sdk.cli.commands.tools.catalog",
    "connect": "toolmesh_sdk.cli.commands.upstreams.connect",
    "upstreams": "toolmesh_sdk.cli.commands.upstreams.upstreams",
    "mcp": "toolmesh_sdk.cli.commands.mcp",
    "namespace": "toolmesh_sdk.cli.commands.namespace",
    "token": "toolmesh_sdk.cli.commands.token",
    "policy": "toolmesh_sdk.cli.commands.policy",
    "audit": "toolmesh_sdk.cli.commands.audit.records",
    "usage": "toolmesh_sdk.cli.commands.usage",
    # What plugins add comes before these.
    "context": "toolmesh_sdk.cli.commands.context",
    "doctor": "toolmesh_sdk.cli.commands.doctor",
    "completion": "toolmesh_sdk.cli.commands.completion",
    "version": "toolmesh_sdk.cli.commands.version",
}
_FIRST_AFTER_PLUGINS = "context"
# Plugins add commands to the one, and the other reports them.
_NEED_PLUGINS = frozenset({"tools", "doctor"})


def build(plugins: Iterable[EntryPoint] | None = None, *, only: str = "") -> typer.Typer:
    """Build the application with the commands of every plugin that loads; None loads the installed ones.

    With `only`, it has the command or group of that name alone, if there is one: to build all of them takes longer
    than most commands run.
    """
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
    if only in _OWN and only not in _NEED_PLUGINS:
        _add(app, only)
        return app
    names = list(_OWN)
    after = names.index(_FIRST_AFTER_PLUGINS)
    for name in names[:after]:
        _add(app, name)
    loaded = load_plugins(app, plugins)
    for name in names[after:]:
        _add(app, name, loaded)
    if only:
        _keep(app, only)
    return app


def _add(app: typer.Typer, name: str, plugins: Sequence[Any] = ()) -> None:
    """Add a command or a group of the program itself."""
    module = import_module(_OWN[name])
    if name == "doctor":
        app.command(name)(module.doctor_for(list(plugins)))
    elif hasattr(module, "app"):
        app.add_typer(module.app, name=name)
    else:
        app.command(name)(getattr(module, name))


def _keep(app: typer.Typer, name: str) -> None:
    """Leave out all commands and groups but one, if there is one of that name."""
    commands = [each for each in app.registered_commands if (each.name or _name_of(each.callback)) == name]
    groups = [each for each in app.registered_groups if each.name == name]
    if commands or groups:
        app.registered_commands, app.registered_groups = commands, groups


def _name_of(callback: Any) -> str:
    return str(callback.__name__).replace("_", "-") if callback else ""


def run() -> None:
    """Run the command line. An unexpected exception is one line on stderr; TOOLMESH_DEBUG=1 shows its traceback."""
    _open_streams()
    # gRPC's own log lines only repeat the error.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    if VARIABLE in os.environ:
        _serve_completion()
    try:
        build(only=_wanted())(prog_name="toolmesh")
    except UnicodeEncodeError:
        # Output is never the cause: both streams accept any character.
        sys.stderr.write("Error: an argument is not UTF-8 text\n")
        sys.exit(USAGE)
    except Exception as error:
        report_unexpected(error)
        sys.exit(FAILED)


def _wanted() -> str:
    """Return the command or group that the command line names; empty if a shell asks what there is, or no first
    argument names one."""
    named = sys.argv[1] if len(sys.argv) > 1 else ""
    return "" if VARIABLE in os.environ or named.startswith("-") else named


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
        from toolmesh_sdk.cli.commands.version import installed_version

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
