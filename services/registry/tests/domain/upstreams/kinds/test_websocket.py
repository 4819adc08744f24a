"""Operations of WebSocket services become manifests."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from services.registry.domain.publishing.manifest import MutationClass
from services.registry.domain.upstreams.definition import UnusableDefinitionError
from services.registry.domain.upstreams.kinds.websocket import map_websocket_operation
from services.registry.domain.upstreams.upstream import Overlay, Upstream, WebSocketEndpoint

NOW = datetime(2026, 11, 18, tzinfo=UTC)
INPUT = {"type": "object", "properties": {"a": {"type": "integer"}}}


def mapped(url: str = "wss://feed.example.com/v1", overlays: tuple[Overlay, ...] = (), **fields: Any) -> Any:
    endpoint = WebSocketEndpoint(url, ())
    upstream = Upstream("feed", endpoint, "operator", NOW, NOW, overlays=overlays)
    definition = {"description": "Asks the feed for numbers.", "input": INPUT, **fields}
    return map_websocket_operation(upstream, endpoint, "askNumbers", json.dumps(definition).encode())


def test_an_operation_writes_unless_it_is_said_to_read() -> None:
    classes = [
        mapped(**fields).manifest.document["mutation_class"]
        for fields in (
            {},
            {"read_only": True},
            {"read_only": "yes"},
            {"overlays": (Overlay("askNumbers", MutationClass.READ_ONLY),)},
        )
    ]
    assert classes == ["write_irreversible", "read_only", "write_irreversible", "read_only"]


def test_the_network_policy_names_the_service_alone() -> None:
    execution = mapped().manifest.document["execution"]
    assert execution["network_policy"] == {"allowed_domains": ["feed.example.com"], "allowed_ports": [443]}
    assert execution["runner"] == "websocket"
    assert json.loads(execution["entry_point"])["upstream"] == "feed"
    assert mapped("ws://10.0.0.7:8080/").manifest.document["execution"]["network_policy"]["allowed_ports"] == [8080]


def test_a_stream_is_a_list_of_messages() -> None:
    output = {"$defs": {"n": {"type": "integer"}}, "$ref": "#/$defs/n"}
    schema = mapped(output=output, stream=True).manifest.document["output"]["schema"]
    assert schema["properties"]["messages"] == {"type": "array", "items": {"$ref": "#/$defs/n"}}
    assert schema["$defs"] == {"n": {"type": "integer"}}
    assert mapped(output=output).manifest.document["output"]["schema"]["$ref"] == "#/$defs/n"


def test_an_operation_without_a_schema_is_refused() -> None:
    with pytest.raises(UnusableDefinitionError):
        mapped(input=None)
