"""`toolmesh tools register`: registers tool manifests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolmesh_sdk.cli.exits import exit_code
from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs.admin_connection import as_admin
from toolmesh_sdk.cli.inputs.json_input import read_json_file
from toolmesh_sdk.cli.inputs.target import Target
from toolmesh_sdk.cli.inputs.target_options import add_target_options
from toolmesh_sdk.cli.tool_names import short_name
from toolmesh_sdk.cli.views import output
from toolmesh_sdk.errors import ToolmeshError, error_from_failure

if TYPE_CHECKING:
    from toolmesh.registry.v1 import registry_service_pb2, tool_manifest_pb2


def add_to(app: typer.Typer) -> None:
    """Add the command to a group."""
    app.command()(register)


@report_errors
@add_target_options()
def register(
    manifests: Annotated[
        list[Path],
        typer.Argument(metavar="MANIFEST", help="JSON files with one manifest each, or - for stdin."),
    ],
    draft: Annotated[bool, typer.Option(help="Register as drafts, which cannot be called yet.")] = False,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Register tool versions from manifests.

    A refusal lists all problems of a manifest. A manifest that is registered already is skipped, so the command can be
    repeated. The first refusal ends the command; earlier manifests stay registered. With --json:
    {"registered": [...]}, and "error" after a refusal.

    \b
    Example:
      toolmesh tools register examples/packs/textkit/manifests/*.json
    """
    from toolmesh.registry.v1.registry_service_pb2 import RegisterToolRequest
    from toolmesh.registry.v1.registry_service_pb2_grpc import RegistryServiceStub

    from toolmesh_sdk.cli.views.documents import message_to_dict

    parsed = [_read_manifest(path) for path in manifests]
    with as_admin(target) as transport:
        stub, done = RegistryServiceStub(transport.channel), []
        for manifest in parsed:
            request = RegisterToolRequest(manifest=manifest, draft=draft)
            try:
                with _manifest_paths():
                    done.append(transport.unary(stub.RegisterTool, request, None, repeatable=True))
            except ToolmeshError as error:
                if not as_json:
                    raise
                output.print_json({"registered": [message_to_dict(each) for each in done], "error": error.to_dict()})
                raise typer.Exit(exit_code(error)) from None
            if not as_json:
                _print_registered(done[-1])
    if as_json:
        output.print_json({"registered": [message_to_dict(each) for each in done]})


@contextmanager
def _manifest_paths() -> Iterator[None]:
    """Translate violations from message fields to the paths and values of the manifest file."""
    from toolmesh_sdk.manifest import translate_violations

    try:
        yield
    except ToolmeshError as error:
        translated = error_from_failure(replace(error.failure, violations=translate_violations(error.violations)))
        translated.attempts = error.attempts
        raise translated from None


def _read_manifest(path: Path) -> tool_manifest_pb2.ToolManifest:
    from toolmesh_sdk.manifest import manifest_from

    return manifest_from(read_json_file(path, "MANIFEST"))


def _print_registered(answer: registry_service_pb2.RegisterToolResponse) -> None:
    outcome = "registered" if answer.created else "was registered already"
    output.out().print(output.text(f"{short_name(answer.version.name)} {outcome}"))
    for finding in answer.warnings:
        output.err().print(output.text((f"{finding.path}: {finding.message}", "yellow")))
