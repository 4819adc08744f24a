"""`toolmesh tools register`: hand manifests to the registry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolmesh_sdk.cli.exits import exit_code
from toolmesh_sdk.cli.failures import reported
from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs.admin_connection import as_steward, short
from toolmesh_sdk.cli.inputs.json_input import json_file
from toolmesh_sdk.cli.inputs.target import Place
from toolmesh_sdk.cli.views import output
from toolmesh_sdk.errors import ToolmeshError, error_from

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
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Register versions of tools: each is admitted as a whole or refused with everything that is wrong with it.

    What was registered before with the same content is left as it is, so the command can be repeated. The first that is refused ends
    it, and those before it stay. With --json: {"registered": [...]}, beside the error where there is one.
    """
    from toolmesh.registry.v1.registry_service_pb2 import RegisterToolRequest
    from toolmesh.registry.v1.registry_service_pb2_grpc import RegistryServiceStub

    from toolmesh_sdk.cli.views.documents import document

    read = [_manifest(path) for path in manifests]
    with as_steward(Place(url=url, token=token, state=state, ca=ca), timeout) as transport:
        stub, done = RegistryServiceStub(transport.channel), []
        for manifest in read:
            request = RegisterToolRequest(manifest=manifest, draft=draft)
            try:
                with _in_its_own_terms():
                    done.append(transport.unary(stub.RegisterTool, request, None, repeatable=True))
            except ToolmeshError as error:
                if not as_json:
                    raise
                output.print_json({"registered": [document(each) for each in done], "error": error.to_dict()})
                raise typer.Exit(exit_code(error)) from None
            if not as_json:
                _tell(done[-1])
    if as_json:
        output.print_json({"registered": [document(each) for each in done]})


@contextmanager
def _in_its_own_terms() -> Iterator[None]:
    """Have a refusal name places and words as the manifest's author writes them, whoever found what is wrong."""
    from toolmesh_sdk.manifest import as_written

    try:
        yield
    except ToolmeshError as error:
        told = error_from(replace(error.failure, violations=as_written(error.violations)))
        told.attempts = error.attempts
        raise told from None


def _manifest(path: Path) -> tool_manifest_pb2.ToolManifest:
    from toolmesh_sdk.manifest import manifest_from

    return manifest_from(json_file(path, "MANIFEST"))


def _tell(answer: registry_service_pb2.RegisterToolResponse) -> None:
    said = "registered" if answer.created else "was registered already"
    output.out().print(output.text(f"{short(answer.version.name)} {said}"))
    for finding in answer.warnings:
        output.err().print(output.text((f"{finding.path}: {finding.message}", "yellow")))
