"""`toolmesh connect`: offers the tools of servers that exist through the mesh."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolmesh_sdk.cli.commands.upstreams.adding import (
    Id,
    ReadOnly,
    SlowCallTime,
    add_and_wait,
    default_id,
    print_connected,
)
from toolmesh_sdk.cli.commands.upstreams.connect_grpc import grpc
from toolmesh_sdk.cli.commands.upstreams.connect_http import http
from toolmesh_sdk.cli.commands.upstreams.connect_openapi import openapi
from toolmesh_sdk.cli.commands.upstreams.connect_websocket import websocket
from toolmesh_sdk.cli.commands.upstreams.secret_options import environment_secrets, file_secrets, header_secrets
from toolmesh_sdk.cli.exits import FAILED
from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs.target import Target
from toolmesh_sdk.cli.inputs.target_options import add_operator_options
from toolmesh_sdk.cli.installs.package import InstalledServer, InstallError
from toolmesh_sdk.cli.views import output
from toolmesh_sdk.cli.views.upstream_report import is_ready, print_upstream, upstream_document

if TYPE_CHECKING:
    from toolmesh.registry.v1 import upstream_pb2 as upb

app = typer.Typer(help="Offer the tools of existing servers.", no_args_is_help=True)
app.command()(openapi)
app.command()(http)
app.command()(grpc)
app.command()(websocket)
# A first start may install and compile; the mesh then waits for the server.
_WAIT_SECONDS = 120.0
_LAUNCHERS = {"uvx": "pypi:", "npx": "npm:"}
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)

Mounts = Annotated[list[Path] | None, typer.Option("--mount", help="A path that the server may read; repeatable.")]
Hosts = Annotated[list[str] | None, typer.Option("--allow-host", help="A host that it may reach; repeatable.")]
Secrets = Annotated[
    list[str] | None, typer.Option("--secret", help="VARIABLE=NAME or HEADER=NAME of a stored secret; repeatable.")
]
Variables = Annotated[list[str] | None, typer.Option("--env", help="NAME=VALUE, never a secret; repeatable.")]


@app.command()
@report_errors
@add_operator_options(_WAIT_SECONDS)
def mcp(
    server: Annotated[
        list[str], typer.Argument(metavar="SERVER [-- ARGUMENTS]", help="pypi:NAME, npm:NAME, a URL or -- COMMAND.")
    ],
    upstream_id: Id = "",
    mount: Mounts = None,
    allow_host: Hosts = None,
    env: Variables = None,
    secret: Secrets = None,
    read_only: ReadOnly = None,
    slow_call_time: SlowCallTime = None,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Connect an MCP server.

    A package is installed once, by hash, into a read-only folder. Packages and commands run confined:
    without network, and with the paths of --mount alone. A tool whose server does not say that it only
    reads counts as one that changes something for good, so its calls need approval.

    A secret is a variable of a confined server, or a header of one at a URL; authorization is sent as a bearer
    token. `toolmesh secrets set NAME` stores it, bound to the hosts and the id of this server.

    \b
    Example:
      toolmesh connect mcp pypi:mcp-server-time
      toolmesh connect mcp pypi:mcp-server-git --mount ~/project -- --repository ~/project
      toolmesh connect mcp npm:@modelcontextprotocol/server-everything
      toolmesh connect mcp --id notes -- ./venv/bin/notes-server --quiet
      toolmesh connect mcp https://mcp.example.com/mcp --secret authorization=example_key
    """
    from toolmesh.registry.v1 import upstream_pb2 as upb

    named = upstream_id or default_id(server[0])
    if server[0].startswith(("https://", "http://")):
        if len(server) > 1 or mount or allow_host or env:
            raise typer.BadParameter("a URL takes no arguments, --mount, --allow-host or --env", param_hint="SERVER")
        remote = upb.McpHttpEndpoint(url=server[0], secrets=header_secrets(secret or []))
        endpoint = upb.UpstreamEndpoint(mcp_http=remote)
    else:
        secrets, variables = environment_secrets(secret or []), _variables(env or [])
        endpoint = _stdio(_install(tuple(server), target), mount or [], allow_host or [], variables)
        endpoint.mcp_stdio.secrets.extend(secrets)
    upstream = add_and_wait(named, endpoint, read_only or [], target, slow_call_time)
    print_connected(upstream, as_json=as_json)


@app.command("file")
@report_errors
@add_operator_options(_WAIT_SECONDS)
def connect_file(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A file with mcpServers, as MCP hosts have.")],
    slow_call_time: SlowCallTime = None,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Connect every server of an `mcpServers` file.

    Each server becomes an upstream of its own name. One with other environment variables or headers than
    secret://NAME is left out: they may be secrets. Connect it by itself, with --env for what is none.

    \b
    Example:
      toolmesh connect file mcp.json
    """
    servers = _read_servers(path)
    results = [_connect_entry(name, entry, target, slow_call_time) for name, entry in servers.items()]
    if as_json:
        output.print_json({"servers": [document for document, _ in results]})
    if any(not ready for _, ready in results):
        raise typer.Exit(FAILED)


def _connect_entry(name: str, entry: Any, target: Target, slow_call_time: str | None) -> tuple[dict[str, Any], bool]:
    from toolmesh.registry.v1 import upstream_pb2 as upb

    from toolmesh_sdk.errors import ToolmeshError

    try:
        variables, headers = file_secrets(entry, "env"), file_secrets(entry, "headers")
        if url := entry.get("url"):
            remote = upb.McpHttpEndpoint(url=str(url), secrets=header_secrets(headers))
            endpoint = upb.UpstreamEndpoint(mcp_http=remote)
        else:
            endpoint = _stdio(_install(_words_of(entry), target), [], [], {})
            endpoint.mcp_stdio.secrets.extend(environment_secrets(variables))
        upstream = add_and_wait(default_id(name), endpoint, [], target, slow_call_time)
    except (InstallError, typer.BadParameter, ToolmeshError) as error:
        output.err().print(output.text(f"{name} is not connected: {error}"))
        return {"id": name, "error": str(error)}, False
    output.err().print(output.text(f"{name}:"))
    print_upstream(upstream)
    return upstream_document(upstream), is_ready(upstream)


def _read_servers(path: Path) -> dict[str, Any]:
    try:
        servers = json.loads(path.read_bytes()).get("mcpServers")
    except (OSError, ValueError, AttributeError) as error:
        raise typer.BadParameter(f"{path} cannot be read: {error}", param_hint="FILE") from None
    if not isinstance(servers, dict) or not all(isinstance(entry, dict) for entry in servers.values()):
        raise typer.BadParameter(f"{path} has no object mcpServers", param_hint="FILE")
    return servers


def _words_of(entry: dict[str, Any]) -> tuple[str, ...]:
    """Return the words of an entry as `toolmesh connect mcp` takes them: `npx -y NAME` is `npm:NAME`."""
    command, arguments = str(entry.get("command", "")), [str(each) for each in entry.get("args", ())]
    if not command:
        raise InstallError("it has neither a command nor a url")
    kind = _LAUNCHERS.get(Path(command).name)
    if kind is None:
        return (command, *arguments)
    rest = [each for each in arguments if each not in ("-y", "--yes")]
    if not rest or rest[0].startswith("-"):
        raise InstallError(f"the options of {command} are not known here")
    return (kind + rest[0], *rest[1:])


def _install(words: tuple[str, ...], target: Target) -> InstalledServer:
    if not target.is_local():
        advice = "programs run on the executors' machines; connect a URL, or run this on the machine of a local mesh"
        raise typer.BadParameter(advice, param_hint="SERVER")
    folder = target.folder.absolute() / "upstreams"
    source, arguments = words[0], words[1:]
    try:
        if source.startswith("pypi:"):
            from toolmesh_sdk.cli.installs.pypi import install_pypi

            return install_pypi(source.removeprefix("pypi:"), arguments, folder / "pypi")
        if source.startswith("npm:"):
            from toolmesh_sdk.cli.installs.npm import install_npm

            return install_npm(source.removeprefix("npm:"), arguments, folder / "npm")
        from toolmesh_sdk.cli.installs.command import find_command

        return find_command(words)
    except InstallError as error:
        raise typer.BadParameter(str(error), param_hint="SERVER") from None


def _stdio(
    installed: InstalledServer, mounts: list[Path], hosts: list[str], variables: dict[str, str]
) -> upb.UpstreamEndpoint:
    from toolmesh.registry.v1 import upstream_pb2 as upb

    paths = [*installed.mounts, *(_existing(path) for path in mounts)]
    return upb.UpstreamEndpoint(
        mcp_stdio=upb.McpStdioEndpoint(
            command=installed.command,
            environment=variables,
            mounts=[upb.UpstreamMount(path=str(path)) for path in dict.fromkeys(paths)],
            allowed_hosts=hosts,
            package=installed.package,
            lock_digest=installed.lock_digest,
        )
    )


def _existing(path: Path) -> Path:
    found = path.expanduser().absolute()
    if not found.exists():
        raise typer.BadParameter(f"there is no {path}", param_hint="--mount")
    return Path(*found.resolve().parts)


def _variables(texts: list[str]) -> dict[str, str]:
    matches = [_VARIABLE.fullmatch(text) for text in texts]
    if not all(matches):
        raise typer.BadParameter("is not NAME=VALUE", param_hint="--env")
    return {match[1]: match[2] for match in matches if match is not None}
