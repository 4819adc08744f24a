"""`toolmesh tools`: what there is to call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolmesh_sdk.cli.commands.tools import discover, lifecycle, register, trust
from toolmesh_sdk.cli.failures import reported
from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs.target import Place, open_client
from toolmesh_sdk.cli.views import output

if TYPE_CHECKING:
    from toolmesh.registry.v1 import registry_service_pb2, tool_version_pb2

app = typer.Typer(help="See what tools there are, and look after them.", no_args_is_help=True)


@app.command("list")
@reported
def list_tools(
    namespace: Annotated[str, typer.Option(help="Only tools of this namespace.")] = "",
    tag: Annotated[list[str] | None, typer.Option(help="Only tools with this tag; repeatable.")] = None,
    usable: Annotated[
        bool, typer.Option("--usable", help="Only tools that the token and the policies let the caller use.")
    ] = False,
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """List the tools, each with the version that `latest` means."""
    from toolmesh_sdk.cli.views.documents import document

    with open_client(Place(url=url, token=token, state=state, ca=ca), timeout) as client:
        found = list(client.list_tools(namespace=namespace, tags=tag or (), usable_only=usable))
    if as_json:
        output.print_json({"tools": [document(tool) for tool in found]})
    elif found:
        output.print_table(("TOOL", "VERSION", "EFFECT", "STATE", "TITLE"), [_row(tool) for tool in found])
    else:
        output.err().print("No tools match." if namespace or tag or usable else "No tools are registered.")


@app.command()
@reported
def show(
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="The tool, such as echo or acme.send_email.")],
    version: Annotated[str, typer.Option(help="The version that this constraint means, instead of the latest.")] = "",
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Show one tool, its schemas and its versions."""
    from toolmesh_sdk.cli.views.documents import document

    with open_client(Place(url=url, token=token, state=state, ca=ca), timeout) as client:
        found = client.get_tool(tool)
        chosen = client.resolve_tool(tool, version) if version else _latest(found)
    if as_json:
        shown = document(chosen) if chosen is not None else None
        versions = [document(each, without=frozenset({"manifest"})) for each in found.versions]
        output.print_json({"tool": document(found.tool), "version": shown, "versions": versions})
    else:
        _describe(found, chosen)


def _latest(found: registry_service_pb2.GetToolResponse) -> tool_version_pb2.ToolVersion | None:
    named = [each for each in found.versions if each.name.endswith(f"/versions/{found.tool.latest_version}")]
    return next(iter(named or found.versions), None)


def _row(listed: registry_service_pb2.ListedTool) -> tuple[str, ...]:
    name = listed.tool.name.removeprefix("tools/")
    if not listed.HasField("version"):
        return (name, "none may run", "", "", listed.tool.title)
    return (name, listed.version.manifest.version, *_effect_and_state(listed.version), listed.tool.title)


def _effect_and_state(version: tool_version_pb2.ToolVersion) -> tuple[str, str]:
    from toolmesh.registry.v1 import tool_manifest_pb2, tool_version_pb2

    from toolmesh_sdk.cli.views.documents import word

    effect = word(tool_manifest_pb2.MutationClass.DESCRIPTOR, version.manifest.mutation_class)
    return effect, word(tool_version_pb2.LifecycleState.DESCRIPTOR, version.state)


def _describe(found: registry_service_pb2.GetToolResponse, chosen: tool_version_pb2.ToolVersion | None) -> None:
    console = output.out()
    console.print(output.text((found.tool.name.removeprefix("tools/"), "bold"), f"  {found.tool.title}"))
    if chosen is not None:
        manifest = chosen.manifest
        effect, state = _effect_and_state(chosen)
        facts = {
            "version": f"{manifest.version} ({state})" + (f": {chosen.state_reason}" if chosen.state_reason else ""),
            "effect": effect,
            "provider": manifest.provider,
            "scopes": " ".join(manifest.permission.required_scopes),
            "tags": " ".join(manifest.tags),
            "digest": chosen.digest,
        }
        for line in manifest.description.splitlines():
            console.print(output.text(line))
        for name, value in facts.items():
            if value:
                console.print(output.text((f"  {name:<9}", "dim"), value))
        _print_json_part("arguments", manifest.input.schema)
        _print_json_part("result", manifest.output.schema)
    rows = [(each.manifest.version, _effect_and_state(each)[1], each.state_reason) for each in found.versions]
    console.print()
    output.print_table(("VERSIONS", "STATE", "REASON"), rows)


def _print_json_part(title: str, schema: bytes) -> None:
    from toolmesh_sdk._wire.payload import parse

    content: Any = parse(schema)
    if content is not None:
        output.out().print(f"\n{title}", style="bold")
        output.print_content(content)


discover.add_to(app)
register.add_to(app)
lifecycle.add_to(app)
trust.add_to(app)
