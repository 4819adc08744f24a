"""`toolmesh tools list` and `show`: print the catalog. Also assembles the `tools` group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolmesh_sdk.cli.commands.tools import discover, lifecycle, logs, register, trust, try_examples
from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs.call_options import Tool
from toolmesh_sdk.cli.inputs.target import Target, open_client
from toolmesh_sdk.cli.inputs.target_options import add_target_options
from toolmesh_sdk.cli.tool_names import describe_look_alikes, look_alike_remark
from toolmesh_sdk.cli.views import output

if TYPE_CHECKING:
    from toolmesh.registry.v1 import registry_service_pb2, tool_manifest_pb2, tool_version_pb2

app = typer.Typer(help="List, find, register and manage tools.", no_args_is_help=True)


@app.command("list")
@report_errors
@add_target_options()
def list_tools(
    namespace: Annotated[str, typer.Option(help="Only tools of this namespace.")] = "",
    tag: Annotated[list[str] | None, typer.Option(help="Only tools with this tag; repeatable.")] = None,
    usable: Annotated[bool, typer.Option("--usable", help="Only tools that the token and the policies allow.")] = False,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """List tools with their latest versions.

    \b
    Examples:
      toolmesh tools list
      toolmesh tools list --usable --json
    """
    from toolmesh_sdk.cli.views.documents import message_to_dict

    with open_client(target) as client:
        tools = list(client.list_tools(namespace=namespace, tags=tag or (), usable_only=usable))
    if as_json:
        output.print_json({"tools": [message_to_dict(tool) for tool in tools]})
    elif tools:
        output.print_table(("TOOL", "VERSION", "EFFECT", "STATE", "TITLE"), [_row(tool) for tool in tools])
    else:
        output.err().print("No tools match." if namespace or tag or usable else "No tools are registered.")


@app.command()
@report_errors
@add_target_options()
def show(
    tool: Tool,
    version: Annotated[str, typer.Option(help="A version constraint; default: the latest version.")] = "",
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Show a tool, its schemas and its versions.

    \b
    Example:
      toolmesh tools show echo
    """
    from toolmesh_sdk.cli.views.documents import message_to_dict

    with open_client(target) as client:
        response = client.get_tool(tool)
        chosen = client.resolve_tool(tool, version) if version else _latest(response)
    if as_json:
        shown = message_to_dict(chosen) if chosen is not None else None
        versions = [message_to_dict(each, without=frozenset({"manifest"})) for each in response.versions]
        output.print_json({"tool": message_to_dict(response.tool), "version": shown, "versions": versions})
    else:
        _describe(response, chosen)


def _latest(response: registry_service_pb2.GetToolResponse) -> tool_version_pb2.ToolVersion | None:
    named = [each for each in response.versions if each.name.endswith(f"/versions/{response.tool.latest_version}")]
    return next(iter(named or response.versions), None)


def _row(listed: registry_service_pb2.ListedTool) -> tuple[str, ...]:
    name = listed.tool.name.removeprefix("tools/")
    if not listed.HasField("version"):
        return (name, "none callable", "", "", listed.tool.title)
    title = listed.tool.title + look_alike_remark(listed.version.trust.look_alikes)
    return (name, listed.version.manifest.version, *_effect_and_state(listed.version), title)


def _effect_and_state(version: tool_version_pb2.ToolVersion) -> tuple[str, str]:
    from toolmesh.registry.v1 import tool_manifest_pb2, tool_version_pb2

    from toolmesh_sdk.cli.views.documents import enum_label

    effect = enum_label(tool_manifest_pb2.MutationClass.DESCRIPTOR, version.manifest.mutation_class)
    state = enum_label(tool_version_pb2.LifecycleState.DESCRIPTOR, version.state)
    return effect, f"{state}, no runner" if version.no_runner else state


def _describe_health(version: tool_version_pb2.ToolVersion) -> str:
    """Return the health of a version that is not healthy, and why; empty for a healthy one."""
    from toolmesh.registry.v1 import tool_health_pb2

    from toolmesh_sdk.cli.views.documents import enum_label

    health = version.health
    return (
        f"{enum_label(tool_health_pb2.ToolHealth.DESCRIPTOR, health.health)}: {health.reason}" if health.reason else ""
    )


def _describe_service_level(promised: tool_manifest_pb2.ServiceLevel) -> str:
    """Return what the author promises about speed and availability; empty for nothing."""
    times = [
        f"{name.removeprefix('latency_')} {getattr(promised, name).ToNanoseconds() / 1e9:g} s"
        for name in ("latency_p50", "latency_p95", "latency_p99")
        if promised.HasField(name)
    ]
    return ", ".join([*times, *([f"{promised.availability:.4%} available"] if promised.availability else [])])


def _describe(response: registry_service_pb2.GetToolResponse, chosen: tool_version_pb2.ToolVersion | None) -> None:
    console = output.out()
    console.print(output.text((response.tool.name.removeprefix("tools/"), "bold"), f"  {response.tool.title}"))
    if chosen is not None:
        manifest = chosen.manifest
        effect, state = _effect_and_state(chosen)
        facts = {
            "version": f"{manifest.version} ({state})" + (f": {chosen.state_reason}" if chosen.state_reason else ""),
            "no runner": chosen.no_runner,
            "health": "" if chosen.no_runner else _describe_health(chosen),
            "confusable": describe_look_alikes(chosen.trust.look_alikes),
            "effect": effect,
            "provider": manifest.provider,
            "scopes": " ".join(manifest.permission.required_scopes),
            "tags": " ".join(manifest.tags),
            "promises": _describe_service_level(manifest.sla),
            "digest": chosen.digest,
            "code": manifest.provenance.pack_digest,
            "revision": manifest.provenance.revision,
            "signed by": manifest.provenance.public_key,
        }
        for line in manifest.description.splitlines():
            console.print(output.text(line))
        for name, value in facts.items():
            if value:
                console.print(output.text((f"  {name:<10}", "dim"), value))
        _print_schema("arguments", manifest.input.schema)
        _print_schema("result", manifest.output.schema)
    rows = [(each.manifest.version, _effect_and_state(each)[1], each.state_reason) for each in response.versions]
    console.print()
    output.print_table(("VERSIONS", "STATE", "REASON"), rows)


def _print_schema(title: str, schema: bytes) -> None:
    from toolmesh_sdk._wire.payload import parse

    content: Any = parse(schema)
    if content is not None:
        output.out().print(f"\n{title}", style="bold")
        output.print_content(content)


discover.add_to(app)
app.command()(logs.logs)
register.add_to(app)
try_examples.add_to(app)
lifecycle.add_to(app)
trust.add_to(app)
