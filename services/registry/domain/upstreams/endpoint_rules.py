"""Checks how an upstream is reached, before it is stored. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from libs.common.errors import MeshError, Violation
from libs.common.json.jsonio import parse_object
from services.registry.domain.publishing.rules.http_endpoint import CONNECTION_HEADERS
from services.registry.domain.upstreams.upstream import (
    Endpoint,
    GrpcEndpoint,
    HttpEndpoint,
    OpenApiEndpoint,
    StdioEndpoint,
    WebSocketEndpoint,
)

# What a sandbox makes itself, or must never see.
_RESERVED_FOLDERS = ("/proc", "/sys", "/dev", "/run", "/tmp", "/etc")  # noqa: S108
# Streamable HTTP and WebSocket set these themselves.
_PROTOCOL_HEADERS = frozenset({"accept", "last-event-id", "user-agent"})
_PROTOCOL_PREFIXES = ("mcp-", "sec-websocket-")


def endpoint_violations(endpoint: Endpoint) -> Iterator[Violation]:
    """Yield what is wrong with an endpoint, beyond what the contract says about its fields."""
    if isinstance(endpoint, HttpEndpoint):
        yield from _http_violations(endpoint)
    elif isinstance(endpoint, OpenApiEndpoint):
        yield from _openapi_violations(endpoint)
    elif isinstance(endpoint, GrpcEndpoint):
        yield from _grpc_violations(endpoint)
    elif isinstance(endpoint, WebSocketEndpoint):
        yield from _websocket_violations(endpoint)
    else:
        yield from _stdio_violations(endpoint)


def _http_violations(endpoint: HttpEndpoint) -> Iterator[Violation]:
    yield from _url_violations("endpoint.mcp_http.url", endpoint.url)
    yield from _header_violations("endpoint.mcp_http.secrets", [each.key for each in endpoint.secrets])


def _header_violations(path: str, keys: Sequence[str]) -> Iterator[Violation]:
    yield from _unique_violations(path, keys, "a header")
    for index, key in enumerate(keys):
        if not key.replace("-", "").replace("_", "").isalnum():
            yield Violation(f"{path}[{index}].key", "secrets.header", "is not the name of a header")
        elif key in CONNECTION_HEADERS or key in _PROTOCOL_HEADERS or key.startswith(_PROTOCOL_PREFIXES):
            yield Violation(
                f"{path}[{index}].key", "secrets.header", "is a header of the connection or of the protocol"
            )


def _openapi_violations(endpoint: OpenApiEndpoint) -> Iterator[Violation]:
    for path, url in (("endpoint.openapi.url", endpoint.url), ("endpoint.openapi.server", endpoint.server)):
        if url:
            yield from _url_violations(path, url)
    if endpoint.content and not _is_object(endpoint.content):
        yield Violation("endpoint.openapi.content", "openapi.json", "is not a JSON object")
    for index, origin in enumerate(endpoint.failover):
        yield from _url_violations(f"endpoint.openapi.failover_origins[{index}]", origin)
    schemes = [scheme for scheme, _ in endpoint.secrets]
    yield from _unique_violations("endpoint.openapi.secrets", schemes, "a security scheme")


def _grpc_violations(endpoint: GrpcEndpoint) -> Iterator[Violation]:
    if not 0 < int(endpoint.address.rpartition(":")[2]) < 65536:
        yield Violation("endpoint.grpc.address", "address.port", "has no usable port")
    if endpoint.plaintext and (endpoint.ca_file or endpoint.certificate_file):
        yield Violation("endpoint.grpc.plaintext", "address.plaintext", "excludes the certificates of TLS")
    if endpoint.plaintext and endpoint.secrets:
        yield Violation("endpoint.grpc.secrets", "secrets.plaintext", "are not sent without TLS")
    yield from _unique_violations("endpoint.grpc.secrets", [each.key for each in endpoint.secrets], "a key")


def _websocket_violations(endpoint: WebSocketEndpoint) -> Iterator[Violation]:
    yield from _url_violations("endpoint.websocket.url", endpoint.url)
    yield from _header_violations("endpoint.websocket.secrets", [each.key for each in endpoint.secrets])
    path = "endpoint.websocket.operations"
    names = [each.name for each in endpoint.operations]
    if len(set(names)) < len(names):
        yield Violation(path, "operations.unique", "names an operation for the second time")
    for index, operation in enumerate(endpoint.operations):
        texts = {name: getattr(operation, name) for name in ("input_schema", "output_schema", "constants", "end")}
        for name, text in texts.items():
            if text and not _is_object(text):
                yield Violation(f"{path}[{index}].{name}", "operations.json", "is not a JSON object")
        if operation.end and not operation.stream:
            yield Violation(f"{path}[{index}].end", "operations.end", "is for the answer of a stream")


def _is_object(text: str) -> bool:
    try:
        parse_object(text.encode())
    except MeshError:
        return False
    return True


def _unique_violations(path: str, names: Sequence[str], kind: str) -> Iterator[Violation]:
    if len(set(names)) < len(names):
        yield Violation(path, "secrets.unique", f"names {kind} for the second time")


def _url_violations(path: str, url: str) -> Iterator[Violation]:
    try:
        parts = urlsplit(url)
        if not parts.hostname or parts.port == 0:
            yield Violation(path, "url.host", "has no host or no usable port")
    except ValueError:
        yield Violation(path, "url.form", "is not a URL")


def _stdio_violations(endpoint: StdioEndpoint) -> Iterator[Violation]:
    texts = (*endpoint.command, *endpoint.environment.values())
    if any("\0" in text for text in texts):
        yield Violation("endpoint.mcp_stdio", "text.no_null", "holds the null character")
    if not endpoint.command[0].startswith("/"):
        yield Violation("endpoint.mcp_stdio.command[0]", "command.absolute", "is not an absolute path")
    variables = [each.variable for each in endpoint.secrets]
    yield from _unique_violations("endpoint.mcp_stdio.secrets", [*variables, *endpoint.environment], "a variable")
    for index, mount in enumerate(endpoint.mounts):
        path = f"endpoint.mcp_stdio.mounts[{index}].path"
        if mount.path != posixpath.normpath(mount.path):
            yield Violation(path, "mount.normal", "is not in its shortest form")
        elif mount.path == "/" or any(_is_within(mount.path, folder) for folder in _RESERVED_FOLDERS):
            yield Violation(path, "mount.reserved", "is a folder that a sandbox makes itself")


def _is_within(path: str, folder: str) -> bool:
    return path == folder or (path.startswith(folder + "/") and folder != "/tmp" and folder != "/run")  # noqa: S108
