"""Conversions of the upstream service."""

from __future__ import annotations

from datetime import timedelta

from google.protobuf.duration_pb2 import Duration
from toolmesh.registry.v1 import tool_manifest_pb2, upstream_pb2
from toolmesh.registry.v1 import upstream_service_pb2 as pb

from services.registry.convert.shared import timestamp
from services.registry.convert.upstream_endpoints import (
    metadata_secrets,
    metadata_secrets_of,
    websocket,
    websocket_of,
)
from services.registry.domain.publishing.manifest import MutationClass
from services.registry.domain.upstreams.find_upstreams import Event, Heartbeat, SnapshotComplete, UpstreamRemoved
from services.registry.domain.upstreams.upstream import (
    DiscoveredTool,
    Discovery,
    Endpoint,
    EnvironmentSecret,
    GrpcEndpoint,
    HttpEndpoint,
    Mount,
    OpenApiEndpoint,
    Overlay,
    StdioEndpoint,
    ToolState,
    Upstream,
    UpstreamReport,
    UpstreamTool,
    WebSocketEndpoint,
)

# The part of a 4 MiB message that definitions may use.
_DEFINITION_BYTES = 2 * 1024 * 1024
_MUTATION = "MUTATION_CLASS_"


def upstream_id_of(name: str) -> str:
    """Return the id of a resource name."""
    return name.removeprefix("upstreams/")


def endpoint_of(message: upstream_pb2.UpstreamEndpoint) -> Endpoint:
    """Read an endpoint."""
    if message.WhichOneof("kind") == "mcp_http":
        return HttpEndpoint(message.mcp_http.url, metadata_secrets_of(message.mcp_http.secrets))
    if message.WhichOneof("kind") == "openapi":
        return OpenApiEndpoint(
            url=message.openapi.url,
            path=message.openapi.path,
            content=message.openapi.content.decode(errors="replace"),
            server=message.openapi.server.rstrip("/"),
            operations=tuple(message.openapi.operations),
            secrets=tuple((each.scheme, each.secret) for each in message.openapi.secrets),
            failover=tuple(origin.lower() for origin in message.openapi.failover_origins),
        )
    if message.WhichOneof("kind") == "grpc":
        return _grpc_of(message.grpc)
    if message.WhichOneof("kind") == "websocket":
        return websocket_of(message.websocket)
    stdio = message.mcp_stdio
    return StdioEndpoint(
        command=tuple(stdio.command),
        environment=dict(sorted(stdio.environment.items())),
        mounts=tuple(Mount(mount.path) for mount in stdio.mounts),
        allowed_hosts=tuple(stdio.allowed_hosts),
        package=stdio.package,
        lock_digest=stdio.lock_digest,
        secrets=tuple(EnvironmentSecret(each.variable, each.secret) for each in stdio.secrets),
    )


def _grpc_of(message: upstream_pb2.GrpcEndpoint) -> GrpcEndpoint:
    return GrpcEndpoint(
        address=message.address.lower(),
        plaintext=message.plaintext,
        descriptor_set=message.descriptor_set,
        methods=tuple(message.methods),
        secrets=metadata_secrets_of(message.secrets),
        ca_file=message.ca_file,
        certificate_file=message.certificate_file,
    )


def overlays_of(request: pb.AddUpstreamRequest) -> tuple[Overlay, ...]:
    """Read the overlays of a request."""
    names = tool_manifest_pb2.MutationClass
    return tuple(
        Overlay(
            each.native_name,
            MutationClass(names.Name(each.mutation_class).removeprefix(_MUTATION).lower()),
            each.compensation_tool,
        )
        for each in request.overlays
    )


def slow_call_time_of(request: pb.AddUpstreamRequest) -> str:
    """Read what counts as a slow call, as manifests write times; empty for none."""
    return request.slow_call_time.ToJsonString() if request.HasField("slow_call_time") else ""


def report_of(request: pb.ReportUpstreamRequest) -> UpstreamReport:
    """Read a report."""
    discovery = None
    if request.HasField("discovery"):
        found = request.discovery
        discovery = Discovery(
            found.server_name,
            found.server_version,
            found.protocol_version,
            tuple(DiscoveredTool(tool.native_name, tool.definition, tool.problem) for tool in found.tools),
        )
    return UpstreamReport(request.instance, request.generation, discovery, request.failure.reason)


def upstream(
    stored: Upstream, *, with_tools: bool = True, with_findings: bool = True, with_definitions: bool = False
) -> upstream_pb2.Upstream:
    """Write an upstream. Definitions that do not fit into a message are left out."""
    message = upstream_pb2.Upstream(
        name=stored.name,
        endpoint=_endpoint(stored.endpoint),
        overlays=[
            upstream_pb2.ToolOverlay(
                native_name=each.native_name,
                mutation_class=_mutation(each.mutation_class.value),
                compensation_tool=each.compensation_tool,
            )
            for each in stored.overlays
        ],
        state=upstream_pb2.UpstreamState.Value(f"UPSTREAM_STATE_{stored.state.value.upper()}"),
        state_reason=stored.state_reason,
        server_name=stored.server_name,
        server_version=stored.server_version,
        protocol_version=stored.protocol_version,
        added_by=stored.added_by,
        create_time=timestamp(stored.create_time),
        update_time=timestamp(stored.update_time),
        generation=stored.generation,
        observed_generation=stored.observed_generation,
        etag=stored.etag,
    )
    if stored.last_answer_time is not None:
        message.last_answer_time.CopyFrom(timestamp(stored.last_answer_time))
    if stored.slow_call_time:
        message.slow_call_time.FromJsonString(stored.slow_call_time)
    budget = _DEFINITION_BYTES if with_definitions else 0
    for tool in stored.tools if with_tools else ():
        size = len(tool.accepted_definition) + len(tool.pending_definition)
        shown = tool.state is ToolState.QUARANTINED and size <= budget
        budget -= size if shown else 0
        message.tools.append(_tool(tool, with_findings=with_findings, with_definitions=shown))
        if with_findings and tool.tool_version:
            message.tools[-1].secrets.extend(stored.secrets_of(tool))
    return message


def watch_response(event: Event) -> pb.WatchUpstreamsResponse:
    """Write an event."""
    if isinstance(event, UpstreamRemoved):
        return pb.WatchUpstreamsResponse(removed=event.name)
    if isinstance(event, SnapshotComplete):
        return pb.WatchUpstreamsResponse(snapshot_complete=pb.WatchUpstreamsResponse.SnapshotComplete())
    if isinstance(event, Heartbeat):
        return pb.WatchUpstreamsResponse(heartbeat=pb.WatchUpstreamsResponse.Heartbeat())
    return pb.WatchUpstreamsResponse(upstream=upstream(event, with_tools=False))


def report_response(due: timedelta) -> pb.ReportUpstreamResponse:
    """Write when the next report is due."""
    duration = Duration()
    duration.FromTimedelta(due)
    return pb.ReportUpstreamResponse(next_report=duration)


def _endpoint(endpoint: Endpoint) -> upstream_pb2.UpstreamEndpoint:
    if isinstance(endpoint, HttpEndpoint):
        remote = upstream_pb2.McpHttpEndpoint(url=endpoint.url, secrets=metadata_secrets(endpoint.secrets))
        return upstream_pb2.UpstreamEndpoint(mcp_http=remote)
    if isinstance(endpoint, OpenApiEndpoint):
        return upstream_pb2.UpstreamEndpoint(openapi=_openapi(endpoint))
    if isinstance(endpoint, GrpcEndpoint):
        return upstream_pb2.UpstreamEndpoint(grpc=_grpc(endpoint))
    if isinstance(endpoint, WebSocketEndpoint):
        return upstream_pb2.UpstreamEndpoint(websocket=websocket(endpoint))
    return upstream_pb2.UpstreamEndpoint(
        mcp_stdio=upstream_pb2.McpStdioEndpoint(
            command=endpoint.command,
            environment=endpoint.environment,
            mounts=[upstream_pb2.UpstreamMount(path=each.path) for each in endpoint.mounts],
            allowed_hosts=endpoint.allowed_hosts,
            package=endpoint.package,
            lock_digest=endpoint.lock_digest,
            secrets=[
                upstream_pb2.EnvironmentSecret(variable=each.variable, secret=each.secret) for each in endpoint.secrets
            ],
        )
    )


def _grpc(endpoint: GrpcEndpoint) -> upstream_pb2.GrpcEndpoint:
    return upstream_pb2.GrpcEndpoint(
        address=endpoint.address,
        plaintext=endpoint.plaintext,
        descriptor_set=endpoint.descriptor_set,
        methods=endpoint.methods,
        secrets=metadata_secrets(endpoint.secrets),
        ca_file=endpoint.ca_file,
        certificate_file=endpoint.certificate_file,
    )


def _openapi(endpoint: OpenApiEndpoint) -> upstream_pb2.OpenApiEndpoint:
    message = upstream_pb2.OpenApiEndpoint(
        server=endpoint.server,
        operations=endpoint.operations,
        secrets=[upstream_pb2.SchemeSecret(scheme=scheme, secret=secret) for scheme, secret in endpoint.secrets],
        failover_origins=endpoint.failover,
    )
    if endpoint.url:
        message.url = endpoint.url
    elif endpoint.content:
        message.content = endpoint.content.encode()
    else:
        message.path = endpoint.path
    return message


def _tool(tool: UpstreamTool, *, with_findings: bool, with_definitions: bool) -> upstream_pb2.UpstreamTool:
    message = upstream_pb2.UpstreamTool(
        native_name=tool.native_name,
        state=upstream_pb2.UpstreamToolState.Value(f"UPSTREAM_TOOL_STATE_{tool.state.value.upper()}"),
        tool_version=tool.tool_version,
        mutation_class=_mutation(tool.mutation_class),
        accepted_digest=tool.accepted_digest,
        pending_digest=tool.pending_digest if tool.state is ToolState.QUARANTINED else "",
    )
    if with_findings:
        message.notes.extend(tool.notes)
        for each in tool.findings:
            message.findings.add(path=each.path, rule=each.rule, message=each.message)
    if with_definitions:
        message.accepted_definition = tool.accepted_definition.encode()
        message.pending_definition = tool.pending_definition.encode()
    return message


def _mutation(word: str) -> tool_manifest_pb2.MutationClass.ValueType:
    return tool_manifest_pb2.MutationClass.Value(f"{_MUTATION}{word.upper() or 'UNSPECIFIED'}")
