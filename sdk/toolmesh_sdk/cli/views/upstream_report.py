"""Prints upstreams: what came in, what was refused and why, and what changed."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from toolmesh_sdk.cli.views import output

if TYPE_CHECKING:
    from toolmesh.registry.v1 import upstream_pb2 as upb

_TOOL_STATE, _STATE, _MUTATION = "UPSTREAM_TOOL_STATE_", "UPSTREAM_STATE_", "MUTATION_CLASS_"
_NEEDS = {"read_only": "", "write_reversible": "approval in production", "write_irreversible": "approval"}


def is_ready(upstream: upb.Upstream) -> bool:
    """Return whether the server answers."""
    return _state(upstream) == "ready"


def changed_tools(upstream: upb.Upstream) -> list[upb.UpstreamTool]:
    """Return the tools whose new definition waits for acceptance."""
    return [tool for tool in upstream.tools if _tool_state(tool) == "quarantined" and tool.pending_digest]


def upstream_document(upstream: upb.Upstream) -> dict[str, Any]:
    """Return an upstream as JSON."""
    from toolmesh_sdk.cli.views.documents import message_to_dict

    document = message_to_dict(upstream)
    return document | {"id": _id(upstream)}


def print_upstreams(upstreams: Sequence[upb.Upstream]) -> None:
    """Print a line for each upstream."""
    rows = []
    for each in upstreams:
        states = [_tool_state(tool) for tool in each.tools]
        counts = (str(states.count(state)) for state in ("admitted", "quarantined", "refused"))
        rows.append((_id(each), _kind(each), _state(each), *counts, each.state_reason))
    output.print_table(("ID", "KIND", "STATE", "TOOLS", "CHANGED", "REFUSED", "WHY"), rows)


def print_upstream(upstream: upb.Upstream) -> None:
    """Print an upstream and what became of each of its tools."""
    server = f"{upstream.server_name} {upstream.server_version}".strip()
    line = f"{_id(upstream)} is {_state(upstream)}"
    if upstream.state_reason:
        line += f": {upstream.state_reason}"
    about = ", ".join(each for each in (_kind(upstream), server, upstream.protocol_version) if each)
    output.out().print(output.text(line, (f"  {about}", "dim")))
    if upstream.tools:
        headings = ("SERVER'S NAME", "STATE", "TOOL", "EFFECT", "CALLS NEED", "REMARK")
        output.print_table(headings, [_row(tool) for tool in upstream.tools])


def print_times(upstream: upb.Upstream) -> None:
    """Print when the server last answered, when the mesh last changed what it knows of it, and which calls are slow."""
    from toolmesh_sdk.cli.views.charts import format_duration
    from toolmesh_sdk.cli.views.documents import format_time

    answered = (
        f"last answer {format_time(upstream.last_answer_time)}, " if upstream.HasField("last_answer_time") else ""
    )
    output.out().print(output.text((f"{answered}last change {format_time(upstream.update_time)}", "dim")))
    if upstream.HasField("slow_call_time"):
        seconds = upstream.slow_call_time.ToMicroseconds() / 1e6
        output.out().print(output.text((f"calls of more than {format_duration(seconds)} are slow", "dim")))


def print_changes(tools: Iterable[upb.UpstreamTool]) -> None:
    """Print the difference between the accepted and the new definition of each tool."""
    console = output.out()
    for tool in tools:
        console.print(output.text(f"{tool.native_name}: {tool.accepted_digest} -> {tool.pending_digest}"))
        before, after = (_lines(each) for each in (tool.accepted_definition, tool.pending_definition))
        for line in difflib.unified_diff(before, after, "accepted", "now", lineterm=""):
            style = {"+": "green", "-": "red"}.get(line[:1], "")
            console.print(output.text((line, style)))


def _row(tool: upb.UpstreamTool) -> tuple[str, ...]:
    effect = _mutation(tool)
    version = tool.tool_version.removeprefix("tools/").replace("/versions/", "@")
    remarks = [f"{each.path}: {each.message}" if each.path else each.message for each in tool.findings]
    if _tool_state(tool) == "quarantined":
        remarks.insert(0, "its definition changed")
    needs = ", ".join(each for each in (*tool.secrets, _NEEDS.get(effect, "")) if each) or "nothing"
    return (
        tool.native_name,
        _tool_state(tool),
        version,
        effect,
        needs if version else "",
        "; ".join([*remarks, *tool.notes]),
    )


def _lines(definition: bytes) -> list[str]:
    try:
        return json.dumps(json.loads(definition or b"{}"), indent=2, sort_keys=True, ensure_ascii=True).splitlines()
    except ValueError:
        return []


def _id(upstream: upb.Upstream) -> str:
    return upstream.name.removeprefix("upstreams/")


def _kind(upstream: upb.Upstream) -> str:
    kind = upstream.endpoint.WhichOneof("kind")
    if kind == "mcp_http":
        return upstream.endpoint.mcp_http.url
    if kind == "openapi":
        endpoint = upstream.endpoint.openapi
        return endpoint.url or endpoint.path or endpoint.server
    if kind == "grpc":
        return upstream.endpoint.grpc.address
    if kind == "websocket":
        return upstream.endpoint.websocket.url
    return upstream.endpoint.mcp_stdio.package or upstream.endpoint.mcp_stdio.command[0]


def _state(upstream: upb.Upstream) -> str:
    from toolmesh.registry.v1 import upstream_pb2

    return upstream_pb2.UpstreamState.Name(upstream.state).removeprefix(_STATE).lower()


def _tool_state(tool: upb.UpstreamTool) -> str:
    from toolmesh.registry.v1 import upstream_pb2

    return upstream_pb2.UpstreamToolState.Name(tool.state).removeprefix(_TOOL_STATE).lower()


def _mutation(tool: upb.UpstreamTool) -> str:
    from toolmesh.registry.v1 import tool_manifest_pb2

    word = tool_manifest_pb2.MutationClass.Name(tool.mutation_class).removeprefix(_MUTATION).lower()
    return "" if word == "unspecified" else word
