"""Tools of the sample pack, registered under names of the bench, with what a measurement needs changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
from toolmesh.registry.v1 import registry_service_pb2 as pb
from toolmesh.registry.v1.registry_service_pb2_grpc import RegistryServiceStub
from toolmesh_sdk.manifest import manifest_from

from bench.stage import Stage

PACK = Path(__file__).parents[1] / "examples" / "packs" / "textkit" / "manifests"
Change = Callable[[dict[str, Any]], None]


def registry_channel(stage: Stage, address: str = "") -> grpc.Channel:
    """Return a channel to the registry, or to another process of it, as the operator."""
    pair = ((stage.pki / "operator.key").read_bytes(), (stage.pki / "operator.pem").read_bytes())
    credentials = grpc.ssl_channel_credentials((stage.pki / "ca.pem").read_bytes(), *pair)
    options = [("grpc.ssl_target_name_override", "registry")]
    return grpc.secure_channel(address or stage.parts["registry"][0], credentials, options=options)


def register(stage: Stage, file: str, name: str, *, tier: str = "process", change: Change | None = None) -> str:
    """Register a tool of the pack under a name of the bench; return what it is called by. Once is as good as twice."""
    document: dict[str, Any] = json.loads((PACK / f"{file}.json").read_text())
    document |= {"namespace": "bench", "provider": "bench", "tool_id": name}
    document["interface"]["safety"]["sandbox_tier"] = tier
    if change is not None:
        change(document)
    manifest = manifest_from(document)
    with registry_channel(stage) as channel:
        RegistryServiceStub(channel).RegisterTool(pb.RegisterToolRequest(manifest=manifest), timeout=60)
    return f"bench.{name}"
