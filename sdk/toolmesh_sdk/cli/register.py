"""`toolmesh tools register`: hand manifests to the registry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolmesh_sdk.cli import options, output
from toolmesh_sdk.cli.failures import reported
from toolmesh_sdk.cli.place import Place
from toolmesh_sdk.cli.steward import as_steward, short

if TYPE_CHECKING:
    from toolmesh.registry.v1 import registry_service_pb2, tool_manifest_pb2


def add_to(app: typer.Typer) -> None:
    """Add the command to a group."""
    app.command()(register)


@reported
def register(
    manifests: Annotated[
        list[Path],
        typer.Argument(metavar="MANIFEST...", help="JSON files, one manifest in each; or - for one on stdin."),
    ],
    draft: Annotated[bool, typer.Option(help="Keep them from being called until they are published.")] = False,
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = "",
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Register versions of tools: each is admitted as a whole or refused with everything that is wrong with it.

    What was registered before with the same content is left as it is, so the command can be repeated.
    """
    from toolmesh.registry.v1.registry_service_pb2 import RegisterToolRequest
    from toolmesh.registry.v1.registry_service_pb2_grpc import RegistryServiceStub

    read = [_manifest(path) for path in manifests]
    with as_steward(Place(url=url, token=token, state=state, ca=ca), timeout) as transport:
        stub = RegistryServiceStub(transport.channel)
        for manifest in read:
            request = RegisterToolRequest(manifest=manifest, draft=draft)
            _tell(transport.unary(stub.RegisterTool, request, None, repeatable=True), as_json)


def _manifest(path: Path) -> tool_manifest_pb2.ToolManifest:
    from toolmesh_sdk.manifest import manifest_from

    stdin = str(path) == options.STDIN
    try:
        text = typer.get_text_stream("stdin").read() if stdin else path.read_text()
        document: Any = json.loads(text)
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be read: {error.strerror}", param_hint="MANIFEST") from None
    except ValueError as error:
        raise typer.BadParameter(f"{path} is not valid JSON: {error}", param_hint="MANIFEST") from None
    return manifest_from(document)


def _tell(answer: registry_service_pb2.RegisterToolResponse, as_json: bool) -> None:
    from toolmesh_sdk.cli.documents import document

    if as_json:
        output.print_json(document(answer))
        return
    said = "registered" if answer.created else "was registered already"
    output.out().print(output.text(f"{short(answer.version.name)} {said}"))
    for finding in answer.warnings:
        output.err().print(output.text((f"{finding.path}: {finding.message}", "yellow")))
