"""The entities of upstreams: how a server is reached, whether it answers, and what became of each of its tools."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from services.registry.domain.publishing.manifest import MutationClass


class UpstreamState(StrEnum):
    """Whether an upstream answers."""

    PENDING = "pending"
    READY = "ready"
    UNAVAILABLE = "unavailable"


class ToolState(StrEnum):
    """What became of a tool of an upstream."""

    ADMITTED = "admitted"
    REFUSED = "refused"
    QUARANTINED = "quarantined"
    MISSING = "missing"


class Mount(Struct, frozen=True):
    """A path of the executor's machine that a confined server sees, read-only."""

    path: str


class EnvironmentSecret(Struct, frozen=True):
    """A secret in the environment of a confined server."""

    variable: str
    secret: str


class MetadataSecret(Struct, frozen=True):
    """A secret in the metadata of gRPC calls, or in a header of an MCP server."""

    key: str
    secret: str
    prefix: str = ""


class StdioEndpoint(Struct, frozen=True, tag="mcp_stdio"):
    """An MCP server that executors run in a sandbox."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = {}
    mounts: tuple[Mount, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    package: str = ""
    lock_digest: str = ""
    secrets: tuple[EnvironmentSecret, ...] = ()


class HttpEndpoint(Struct, frozen=True, tag="mcp_http"):
    """An MCP server over Streamable HTTP."""

    url: str
    secrets: tuple[MetadataSecret, ...] = ()


class OpenApiEndpoint(Struct, frozen=True, tag="openapi"):
    """A REST API, by its OpenAPI document: at a URL, at a path of the executors' machines, or the document itself."""

    url: str = ""
    path: str = ""
    content: str = ""
    server: str = ""
    """Replaces the servers of the document."""
    operations: tuple[str, ...] = ()
    """Patterns of operation ids or tags; none means all."""
    secrets: tuple[tuple[str, str], ...] = ()
    """The security schemes, each with the reference of its secret."""
    failover: tuple[str, ...] = ()
    """Other origins of the API, in the order in which they are tried."""


class GrpcEndpoint(Struct, frozen=True, tag="grpc"):
    """A gRPC server, by reflection or by a descriptor set. Paths are of the executors' machines."""

    address: str
    plaintext: bool = False
    descriptor_set: str = ""
    methods: tuple[str, ...] = ()
    """Patterns of services or methods; none means all."""
    secrets: tuple[MetadataSecret, ...] = ()
    ca_file: str = ""
    certificate_file: str = ""


class WebSocketOperation(Struct, frozen=True):
    """One message to a WebSocket service, and its answer. Schemas, constants and the end are JSON."""

    name: str
    input_schema: str
    description: str = ""
    output_schema: str = ""
    constants: str = ""
    arguments_member: str = ""
    id_member: str = ""
    error_member: str = ""
    stream: bool = False
    end: str = ""
    read_only: bool = False


class WebSocketEndpoint(Struct, frozen=True, tag="websocket"):
    """A WebSocket service, by the operations that the deployment describes."""

    url: str
    operations: tuple[WebSocketOperation, ...]
    secrets: tuple[MetadataSecret, ...] = ()
    subprotocols: tuple[str, ...] = ()


Endpoint = StdioEndpoint | HttpEndpoint | OpenApiEndpoint | GrpcEndpoint | WebSocketEndpoint


class Overlay(Struct, frozen=True):
    """What the deployment says about one tool."""

    native_name: str
    mutation_class: MutationClass
    compensation_tool: str = ""


class Finding(Struct, frozen=True):
    """One reason why a tool was refused."""

    path: str
    rule: str
    message: str


class UpstreamTool(Struct, frozen=True):
    """One tool of an upstream, by its native name."""

    native_name: str
    state: ToolState
    tool_version: str = ""
    """The version that the mesh offers; empty if the tool was never admitted."""
    mutation_class: str = ""
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    accepted_digest: str = ""
    accepted_definition: str = ""
    """JSON."""
    pending_digest: str = ""
    """The digest of the definition that the server offers, where it is not the accepted one."""
    pending_definition: str = ""
    secrets: tuple[str, ...] = ()
    """The secrets of its operation, as references; those of an endpoint are the same for all tools."""


class Upstream(Struct, frozen=True):
    """A server outside the mesh. The id is also the namespace of its tools."""

    upstream_id: str
    endpoint: Endpoint
    added_by: str
    create_time: datetime
    update_time: datetime
    overlays: tuple[Overlay, ...] = ()
    state: UpstreamState = UpstreamState.PENDING
    state_reason: str = ""
    server_name: str = ""
    server_version: str = ""
    protocol_version: str = ""
    tools: tuple[UpstreamTool, ...] = ()
    last_answer_time: datetime | None = None
    last_answer_instance: str = ""
    """The executor that the server last answered."""
    generation: int = 1
    observed_generation: int = 0
    revision: int = 1
    slow_call_time: str = ""
    """The time after which a call is slow, as manifests write it, such as `0.500s`; empty: no call is slow."""

    @property
    def name(self) -> str:
        """The resource name."""
        return f"upstreams/{self.upstream_id}"

    @property
    def etag(self) -> str:
        """Differs after every change."""
        return f"{self.revision:x}"

    def secrets_of(self, tool: UpstreamTool) -> tuple[str, ...]:
        """Return the secrets that calls of a tool carry, as references."""
        if isinstance(self.endpoint, OpenApiEndpoint):
            return tool.secrets
        return tuple(dict.fromkeys(each.secret for each in self.endpoint.secrets))

    def overlay_of(self, native_name: str) -> Overlay | None:
        """Return what the deployment says about a tool."""
        return next((overlay for overlay in self.overlays if overlay.native_name == native_name), None)


class DiscoveredTool(Struct, frozen=True):
    """A tool as its server describes it."""

    native_name: str
    definition: bytes
    """JSON."""
    problem: str = ""
    """Why the executor cannot describe it."""


class Discovery(Struct, frozen=True):
    """What a server offers."""

    server_name: str
    server_version: str
    protocol_version: str
    tools: tuple[DiscoveredTool, ...]


class UpstreamReport(Struct, frozen=True):
    """What an executor found out about an upstream. Without a discovery, the reason says why it did not answer; without
    both, it offers what it did before."""

    instance: str
    generation: int
    discovery: Discovery | None
    reason: str = ""
