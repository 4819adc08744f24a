"""`toolmesh mcp`: connects MCP hosts to the mesh."""

from __future__ import annotations

import enum
import re
import shutil
import ssl
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs.login_key import proof_key_for
from toolmesh_sdk.cli.inputs.target import Target, edge_access
from toolmesh_sdk.cli.inputs.target_options import add_target_options
from toolmesh_sdk.cli.views import output

app = typer.Typer(help="Connect MCP hosts to the mesh.", no_args_is_help=True)
View = Annotated[str, typer.Option(help="The view at /mcp/VIEW; without one, every tool.")]
_VIEW = re.compile(r"([a-z][a-z0-9-]{0,62})?")


class Host(enum.StrEnum):
    """The hosts whose configuration is known."""

    CLAUDE = "claude"
    VSCODE = "vscode"
    CURSOR = "cursor"
    GENERIC = "generic"


class Way(enum.StrEnum):
    """How a host reaches the mesh."""

    STDIO = "stdio"
    HTTP = "http"


@app.command()
@report_errors
@add_target_options()
def config(
    host: Annotated[Host, typer.Argument(help="The host.")],
    transport: Annotated[Way, typer.Option(help="stdio renews its token by itself; http needs one.")] = Way.STDIO,
    view: View = "",
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Print the configuration of an MCP host.

    \b
    Example:
      toolmesh mcp config claude
    """
    address, _ = edge_access(target)
    server = _stdio(target, view) if transport is Way.STDIO else {"url": _endpoint(address, view)}
    output.print_json(_document(host, transport, server))


@app.command()
@report_errors
@add_target_options()
def stdio(
    view: View = "",
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Serve the mesh over standard input and output.

    \b
    Example:
      toolmesh mcp stdio --view sales
    """
    from toolmesh_sdk._wire.mcp_bridge import McpBridge

    address, token = edge_access(target)
    tls = ssl.create_default_context(cafile=str(target.ca.expanduser()) if target.ca else None)
    proof_key = proof_key_for(target.token) if target.token else None
    McpBridge(_endpoint(address, view), token, tls, sys.stdout, proof_key).run(sys.stdin)


def _endpoint(address: str, view: str) -> str:
    if not _VIEW.fullmatch(view):
        raise typer.BadParameter("a view has lower-case letters, digits and hyphens", param_hint="--view")
    return f"{address.rstrip('/')}/mcp" + (f"/{view}" if view else "")


def _stdio(target: Target, view: str) -> dict[str, Any]:
    """Return the command that serves this target. It names no token: the local user's is minted, others are read from
    the context or from TOOLMESH_TOKEN."""
    _endpoint("", view)
    place: dict[str, Any] = {"--context": target.context} if target.context else {"--url": target.url}
    if not target.context and target.is_local():
        # The folder leads to the mesh even when its address changes, and to the certificate that mints tokens.
        place = {"--state": target.state and target.folder}
    options = {"--view": view, **place, "--ca": target.ca}
    arguments = [part for name, value in options.items() if value for part in (name, str(value))]
    return {"command": _program(), "args": ["mcp", "stdio", *arguments]}


def _program() -> str:
    """Return this very program: a host's search path may lead to none or to another."""
    running = Path(sys.argv[0]).absolute()
    return str(running) if running.name == "toolmesh" and running.is_file() else shutil.which("toolmesh") or "toolmesh"


def _document(host: Host, transport: Way, server: dict[str, Any]) -> dict[str, Any]:
    if transport is Way.STDIO:
        described = {"type": "stdio", **server}
        return {"servers" if host is Host.VSCODE else "mcpServers": {"toolmesh": described}}
    if host is Host.VSCODE:
        prompt = {"type": "promptString", "id": "toolmesh-token", "description": "Toolmesh token", "password": True}
        return {"inputs": [prompt], "servers": {"toolmesh": _http(server, "${input:toolmesh-token}")}}
    token = "${env:TOOLMESH_TOKEN}" if host is Host.CURSOR else "${TOOLMESH_TOKEN}"
    return {"mcpServers": {"toolmesh": _http(server, token)}}


def _http(server: dict[str, Any], token: str) -> dict[str, Any]:
    return {"type": "http", **server, "headers": {"Authorization": f"Bearer {token}"}}
