"""What a manifest says about a method of a gRPC service."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from libs.common.rpc.validation.violations import violations_of
from services.registry.adapters.json_schemas import JsonSchemaChecker
from services.registry.convert.manifest import message_of
from services.registry.domain.publishing.admission import violations
from services.registry.domain.publishing.manifest import MutationClass
from services.registry.domain.upstreams.definition import MappedTool, UnusableDefinitionError
from services.registry.domain.upstreams.map_definition import map_definition
from services.registry.domain.upstreams.upstream import GrpcEndpoint, Overlay, Upstream

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAME = "shop.v1.Orders/GetOrder"
ORDER = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Order"}}, "$defs": {"Order": {"type": "object"}}}


def mapped(overlay: Overlay | None = None, address: str = "shop.example:443", **fields: Any) -> MappedTool:
    upstream = Upstream("shop", GrpcEndpoint(address), "operator", NOW, NOW, (overlay,) if overlay else ())
    method = {"method": NAME, "input": ORDER, "output": ORDER, "descriptor": "sha256:0", **fields}
    return map_definition(upstream, NAME, json.dumps(method).encode())


def admitted(**fields: Any) -> MappedTool:
    tool = mapped(**fields)
    assert violations_of(message_of(tool.manifest)) == []
    assert violations(tool.manifest, JsonSchemaChecker(), imported=True) == []
    return tool


@pytest.mark.parametrize(
    ("level", "mutation", "mode"),
    [
        ("no_side_effects", MutationClass.READ_ONLY, "natural"),
        ("idempotent", MutationClass.WRITE_IRREVERSIBLE, "natural"),
        ("", MutationClass.WRITE_IRREVERSIBLE, "key_required"),
    ],
)
def test_the_idempotency_level_decides_what_a_method_does(level: str, mutation: MutationClass, mode: str) -> None:
    manifest = admitted(idempotency=level).manifest
    assert (manifest.mutation_class, manifest.part("idempotency")["mode"]) == (mutation, mode)


def test_the_deployment_knows_better() -> None:
    assert admitted(overlay=Overlay(NAME, MutationClass.READ_ONLY)).manifest.mutation_class is MutationClass.READ_ONLY


def test_the_manifest_names_the_method_and_its_server() -> None:
    manifest = admitted().manifest
    assert manifest.document["tool_id"] == "shop_v1_orders_get_order"
    assert manifest.document["external_mappings"][0]["grpc"]["method"] == NAME
    assert manifest.execution["network_policy"] == {"allowed_domains": ["shop.example"], "allowed_ports": [443]}
    assert json.loads(manifest.execution["entry_point"])["tool"] == NAME
    admitted(address="[::1]:9")


def test_a_stream_is_an_array_of_messages() -> None:
    tool = admitted(server_streaming=True)
    schema = tool.manifest.output["schema"]
    assert schema["properties"]["messages"]["items"]["properties"] == {"next": {"$ref": "#/$defs/Order"}}
    assert schema["$defs"] == ORDER["$defs"]
    assert tool.notes


@pytest.mark.parametrize("fields", [{"client_streaming": True}, {"input": None}, {"output": 7}])
def test_what_a_call_could_not_do_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(UnusableDefinitionError):
        mapped(**fields)
