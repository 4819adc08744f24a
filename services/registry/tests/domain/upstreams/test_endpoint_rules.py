"""What is refused of an upstream's endpoint before it is stored."""

from __future__ import annotations

import pytest

from services.registry.domain.upstreams.endpoint_rules import endpoint_violations
from services.registry.domain.upstreams.upstream import (
    Endpoint,
    EnvironmentSecret,
    GrpcEndpoint,
    HttpEndpoint,
    MetadataSecret,
    Mount,
    OpenApiEndpoint,
    StdioEndpoint,
    WebSocketEndpoint,
    WebSocketOperation,
)

URL, SECRET = "https://mcp.example.com/mcp", "secret://key"
SOCKET, ASK = "wss://feed.example.com/v1", WebSocketOperation("ask", "{}")
TOKEN = MetadataSecret("authorization", SECRET, "Bearer ")


@pytest.mark.parametrize(
    "endpoint",
    [
        HttpEndpoint(URL, (TOKEN, MetadataSecret("x-api-key", SECRET))),
        StdioEndpoint(("/bin/serve",), {"LEVEL": "high"}, secrets=(EnvironmentSecret("TOKEN", SECRET),)),
        GrpcEndpoint("orders.example.com:443", secrets=(TOKEN,)),
        OpenApiEndpoint(path="/o.json", secrets=(("key", SECRET), ("other", SECRET))),
        WebSocketEndpoint(SOCKET, (ASK, WebSocketOperation("feed", "{}", stream=True, end='{"a": 1}')), (TOKEN,)),
    ],
)
def test_a_usable_endpoint_has_no_violation(endpoint: Endpoint) -> None:
    assert list(endpoint_violations(endpoint)) == []


@pytest.mark.parametrize(
    ("endpoint", "rule"),
    [
        (HttpEndpoint("https://[::1"), "url.form"),
        (HttpEndpoint("https://:0/"), "url.host"),
        (HttpEndpoint(URL, (TOKEN, TOKEN)), "secrets.unique"),
        (HttpEndpoint(URL, (MetadataSecret("host", SECRET),)), "secrets.header"),
        (HttpEndpoint(URL, (MetadataSecret("mcp-session-id", SECRET),)), "secrets.header"),
        (HttpEndpoint(URL, (MetadataSecret("accept", SECRET),)), "secrets.header"),
        (HttpEndpoint(URL, (MetadataSecret("x.y", SECRET),)), "secrets.header"),
        (StdioEndpoint(("serve",)), "command.absolute"),
        (StdioEndpoint(("/bin/serve\0",)), "text.no_null"),
        (StdioEndpoint(("/bin/serve",), mounts=(Mount("/etc/passwd"),)), "mount.reserved"),
        (
            StdioEndpoint(("/bin/serve",), {"TOKEN": "x"}, secrets=(EnvironmentSecret("TOKEN", SECRET),)),
            "secrets.unique",
        ),
        (StdioEndpoint(("/bin/serve",), secrets=(EnvironmentSecret("TOKEN", SECRET),) * 2), "secrets.unique"),
        (GrpcEndpoint("a:1", plaintext=True, secrets=(TOKEN,)), "secrets.plaintext"),
        (OpenApiEndpoint(path="/o.json", secrets=(("key", SECRET), ("key", SECRET))), "secrets.unique"),
        (WebSocketEndpoint("wss://:0/", (ASK,)), "url.host"),
        (WebSocketEndpoint(SOCKET, (ASK, ASK)), "operations.unique"),
        (WebSocketEndpoint(SOCKET, (WebSocketOperation("ask", "[]"),)), "operations.json"),
        (WebSocketEndpoint(SOCKET, (WebSocketOperation("ask", "{}", constants='{"a": 1'),)), "operations.json"),
        (WebSocketEndpoint(SOCKET, (WebSocketOperation("ask", "{}", end="{}"),)), "operations.end"),
        (WebSocketEndpoint(SOCKET, (ASK,), (MetadataSecret("sec-websocket-key", SECRET),)), "secrets.header"),
    ],
)
def test_each_violation_names_its_rule(endpoint: Endpoint, rule: str) -> None:
    assert [violation.rule for violation in endpoint_violations(endpoint)] == [rule]
