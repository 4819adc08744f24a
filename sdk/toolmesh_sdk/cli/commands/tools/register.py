"""`toolmesh tools register`: registers tool manifests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from toolmesh.common.v1.error_table import Reason

from toolmesh_sdk.cli.exits import exit_code
from toolmesh_sdk.cli.failures import print_error, report_errors
from toolmesh_sdk.cli.inputs.admin_connection import as_admin
from toolmesh_sdk.cli.inputs.json_input import read_json_file
from toolmesh_sdk.cli.inputs.manifest_files import manifest_files
from toolmesh_sdk.cli.inputs.target import Target
from toolmesh_sdk.cli.inputs.target_options import add_target_options
from toolmesh_sdk.cli.tool_names import short_name
from toolmesh_sdk.cli.views import output
from toolmesh_sdk.errors import ToolmeshError, error_from_failure

if TYPE_CHECKING:
    from toolmesh.registry.v1 import registry_service_pb2
    from toolmesh.registry.v1.registry_service_pb2_grpc import RegistryServiceStub
    from toolmesh.registry.v1.tool_manifest_pb2 import ToolManifest

    from toolmesh_sdk._wire.transport import Transport

# What is wrong with one manifest says nothing about the others.
_OF_THE_MANIFEST = frozenset(
    {
        Reason.TOOL_MANIFEST_INVALID,
        Reason.INVALID_REQUEST,
        Reason.TOOL_VERSION_CONFLICT,
        Reason.ALREADY_EXISTS,
        Reason.FAILED_PRECONDITION,
        Reason.PERMISSION_DENIED,
    }
)


def add_to(app: typer.Typer) -> None:
    """Add the command to a group."""
    app.command()(register)


@report_errors
@add_target_options()
def register(
    manifests: Annotated[
        list[Path],
        typer.Argument(metavar="MANIFEST", help="JSON files with one manifest each, folders of them, or - for stdin."),
    ],
    draft: Annotated[bool, typer.Option(help="Register as drafts, which cannot be called yet.")] = False,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Register tool versions from manifests.

    A refusal lists all problems of a manifest and names its file; the others are registered. A manifest that is
    registered already is skipped, so the command can be repeated. A tool that names another one, such as its
    compensation, is registered with it if that is among the files: both or none. With --json:
    {"registered": [...]}, and "refused" with each "file" and "error".

    \b
    Example:
      toolmesh tools register examples/packs/textkit/manifests
    """
    from toolmesh.registry.v1.registry_service_pb2_grpc import RegistryServiceStub

    from toolmesh_sdk.cli.views.documents import message_to_dict
    from toolmesh_sdk.manifests.parse import manifest_from, parse_manifest
    from toolmesh_sdk.manifests.references import by_tool

    contents = [(path, read_json_file(path, "MANIFEST")) for path in manifest_files(manifests)]
    done, refused = [], list[tuple[Path, ToolmeshError]]()
    known = by_tool(
        message for message, problems in map(parse_manifest, (each for _, each in contents)) if not problems
    )
    beside = set[str]()
    with as_admin(target) as transport:
        stub = RegistryServiceStub(transport.channel)
        for path, content in contents:
            try:
                manifest = manifest_from(content)
                with _manifest_paths():
                    done.append(_register(transport, stub, manifest, known, draft=draft))
            except ToolmeshError as error:
                if error.reason not in _OF_THE_MANIFEST:
                    raise
                refused.append((path, error))
                if not as_json:
                    _print_refused(path, error)
                continue
            beside.update(version.name for version in done[-1].beside)
            # Stored a moment ago, with a tool that names it.
            done[-1].created = done[-1].created or done[-1].version.name in beside
            if not as_json:
                _print_registered(done[-1])
    if as_json:
        document: dict[str, Any] = {"registered": [message_to_dict(each) for each in done]}
        if refused:
            document["refused"] = [{"file": str(path), "error": error.to_dict()} for path, error in refused]
        output.print_json(document)
    if refused:
        raise typer.Exit(exit_code(refused[0][1]))


def _register(
    transport: Transport,
    stub: RegistryServiceStub,
    manifest: ToolManifest,
    known: Mapping[str, ToolManifest],
    *,
    draft: bool,
) -> registry_service_pb2.RegisterToolResponse:
    """Register a manifest; if it names tools that are missing, with those of the known ones."""
    from toolmesh.registry.v1.registry_service_pb2 import RegisterToolRequest

    from toolmesh_sdk.manifests.references import lacks_reference, named_manifests

    request = RegisterToolRequest(manifest=manifest, draft=draft)
    try:
        return transport.unary(stub.RegisterTool, request, None, repeatable=True)
    except ToolmeshError as error:
        request.beside.extend(named_manifests(manifest, known))
        if not request.beside or not lacks_reference(error):
            raise
    return transport.unary(stub.RegisterTool, request, None, repeatable=True)


@contextmanager
def _manifest_paths() -> Iterator[None]:
    """Translate violations from message fields to the paths and values of the manifest file."""
    from toolmesh_sdk.manifests.parse import translate_violations

    try:
        yield
    except ToolmeshError as error:
        translated = error_from_failure(replace(error.failure, violations=translate_violations(error.violations)))
        translated.attempts = error.attempts
        raise translated from None


def _print_refused(path: Path, error: ToolmeshError) -> None:
    output.err().print(output.text((f"{path} was refused:", "bold")))
    print_error(error, as_json=False)


def _print_registered(answer: registry_service_pb2.RegisterToolResponse) -> None:
    outcome = "registered" if answer.created else "was registered already"
    output.out().print(output.text(f"{short_name(answer.version.name)} {outcome}"))
    for finding in answer.warnings:
        output.err().print(output.text((f"{finding.path}: {finding.message}", "yellow")))
