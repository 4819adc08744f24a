"""`toolmesh context`: names the meshes that a person works with, and selects one."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs.contexts import (
    LOCAL,
    SERVICES,
    Context,
    complete_context,
    read_contexts,
    write_contexts,
)
from toolmesh_sdk.cli.inputs.options import refuse_blank
from toolmesh_sdk.cli.inputs.target import Target, authority_tls, client_tls
from toolmesh_sdk.cli.views import output

app = typer.Typer(help="Name the meshes you work with; select one.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The context.", autocompletion=complete_context)]


@app.command()
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name of your choice.", callback=refuse_blank)],
    url: Annotated[str, typer.Option("--url", metavar="URL", help="The edge of the mesh, for callers.")] = "",
    ca: Annotated[Path | None, typer.Option("--ca", help="The CA certificate of the mesh, a PEM file.")] = None,
    cert: Annotated[Path | None, typer.Option("--cert", help="Your operator's certificate, a PEM file.")] = None,
    key: Annotated[Path | None, typer.Option("--key", "--cert-key", help="The private key of --cert.")] = None,
    service: Annotated[
        list[str] | None,
        typer.Option(
            "--service",
            metavar="NAME=HOST:PORT",
            help="The address of a service, for --cert; repeatable. Or one pattern for all: {service}.example:7443.",
        ),
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help="A file that holds your token; read at each call.")] = None,
    use: Annotated[bool, typer.Option("--use", help="Select it, too.")] = False,
    as_json: options.Json = False,
) -> None:
    """Add a mesh, or change one.

    The files are checked now and read at each call; the context holds their paths only.

    \b
    Examples:
      toolmesh context add prod --url https://mesh.example --ca ca.pem --token-file ~/prod.token
      toolmesh context add ops --cert operator.pem --key operator.key --ca ca.pem --service '{service}.example:7443'
    """
    services = dict(_parse_service(text) for text in service or [])
    if name == LOCAL:
        raise typer.BadParameter(f"{LOCAL} is the mesh of this machine; choose another name", param_hint="NAME")
    if not url and not services:
        raise typer.BadParameter("add --url for callers, or --service with --cert for operators", param_hint="--url")
    if services and cert is None:
        raise typer.BadParameter("services admit certificates only; add --cert and --key", param_hint="--service")
    _check_files(url, ca, cert, key, token_file)
    context = Context(url, _absolute(ca), _absolute(cert), _absolute(key), _absolute(token_file), services)
    contexts = read_contexts()
    contexts = replace(contexts, meshes={**contexts.meshes, name: context}, current=name if use else contexts.current)
    write_contexts(contexts)
    _report({"context": name, **asdict(context), "current": contexts.current}, f"Added {name}.", as_json=as_json)
    if not as_json and contexts.current != name:
        output.err().print(f"`toolmesh context use {name}` selects it; --context {name} uses it once.", markup=False)


@app.command()
def use(name: Name, as_json: options.Json = False) -> None:
    """Select the mesh of later commands.

    `local` is the mesh of this machine.

    \b
    Examples:
      toolmesh context use prod
      toolmesh context use local
    """
    contexts = read_contexts()
    contexts.get(name)
    write_contexts(replace(contexts, current=name))
    _report({"current": name}, f"Commands now go to {name}.", as_json=as_json)


@app.command("list")
def list_contexts(as_json: options.Json = False) -> None:
    """List the meshes; a star marks the selected one.

    \b
    Example:
      toolmesh context list
    """
    contexts = read_contexts()
    if as_json:
        meshes = {name: asdict(context) for name, context in contexts.meshes.items()}
        output.print_json({"current": contexts.current, "contexts": meshes})
        return
    rows = [[_star(contexts.current, LOCAL), LOCAL, "the mesh of this machine", ""]]
    for name, context in sorted(contexts.meshes.items()):
        address = context.url or next(iter(context.services.values()), "")
        rows.append([_star(contexts.current, name), name, address, "operator" if context.cert else "caller"])
    output.print_table(["", "name", "address", "as"], rows)


@app.command()
def remove(name: Name, as_json: options.Json = False) -> None:
    """Forget a mesh; its files stay.

    \b
    Example:
      toolmesh context remove prod
    """
    contexts = read_contexts()
    if contexts.get(name) is None:
        raise typer.BadParameter(f"{LOCAL} is the mesh of this machine and stays", param_hint="NAME")
    meshes = {other: context for other, context in contexts.meshes.items() if other != name}
    current = LOCAL if contexts.current == name else contexts.current
    write_contexts(replace(contexts, meshes=meshes, current=current))
    _report({"removed": name, "current": current}, f"Removed {name}; commands go to {current}.", as_json=as_json)


def _parse_service(text: str) -> tuple[str, str]:
    name, separator, address = text.partition("=")
    if not separator and "{service}" in text:
        return "*", text
    if name not in SERVICES or not address:
        known = ", ".join(SERVICES)
        raise typer.BadParameter(
            f"{text} is not NAME=HOST:PORT of {known}, nor a pattern with {{service}}", param_hint="--service"
        )
    return name, address


def _check_files(url: str, ca: Path | None, cert: Path | None, key: Path | None, token_file: Path | None) -> None:
    authority_tls(Target(url=url, ca=ca))
    if cert is not None:
        client_tls(Target(url=url, cert=cert, cert_key=key))
    if token_file is not None and not token_file.expanduser().is_file():
        raise typer.BadParameter(f"{token_file} is not a file", param_hint="--token-file")


def _absolute(path: Path | None) -> str:
    return str(path.expanduser().absolute()) if path else ""


def _star(current: str, name: str) -> str:
    return "*" if current == name else ""


def _report(document: dict[str, Any], message: str, *, as_json: bool) -> None:
    if as_json:
        output.print_json(document)
    else:
        output.err().print(message, markup=False)
