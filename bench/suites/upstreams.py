"""A call of a service outside the mesh: straight, and through the mesh with a secret that is read for every call and a
circuit that all executors share.

The service is the smallest there is, so that what is seen is what the mesh adds. The ratio to a tool inside the
executor says what the request itself adds to a governed call.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import grpc
from toolmesh.registry.v1 import registry_service_pb2 as pb
from toolmesh.registry.v1.registry_service_pb2_grpc import RegistryServiceStub
from toolmesh_sdk.manifests.parse import manifest_from

from bench.environment.mesh import Stage, listening
from bench.fixtures.packs import registry_channel
from bench.floors.echo import ECHO
from bench.load.calls import MESSAGE, TEXT, entry, message
from bench.load.generator import Body, Target, in_turns, offer
from bench.report.measurement import Row
from tests.harness.mesh import invoke
from tests.harness.stores import free_port, wait_until

SUITE = "upstreams"
DIRECT = "an HTTP service, called straight"
GOVERNED = "the service through the mesh, gRPC, with circuit and secret"
PLAIN = "the service through the mesh, gRPC, with circuit"
JSON = "the service through the mesh, JSON-RPC through Envoy, with circuit and secret"
BUILTIN = "a governed tool inside the executor, gRPC"
AT = (16, 1)
KEY_NAME = "upstream_key"
NAMESPACE = "bench-upstream"


def run(stage: Stage) -> Iterator[Row]:
    """Measure every way beside the service itself, under load and alone."""
    port = free_port()
    with listening([sys.executable, "-m", "bench.peers.http_echo", str(port)], port, "the HTTP service") as pid:
        bound = ("--host", "127.0.0.1", "--namespace", NAMESPACE)
        stage.mesh.store_secret("a-value-of-the-bench", "set", KEY_NAME, *bound)
        tools = {secret: _register(stage, port, secret) for secret in (KEY_NAME, "")}
        ways = _Ways(stage, port, pid, tools)
        for at in AT:
            yield from _beside_service(ways, at)


class _Ways:
    """The service, and the ways to it."""

    def __init__(self, stage: Stage, port: int, pid: int, tools: dict[str, str]) -> None:
        self._stage, self._pid, self._tools = stage, pid, tools
        self._direct = Target(
            f"http://127.0.0.1:{port}", "/", kind="json", headers={"content-type": "application/json"}
        )

    def direct(self, at: int) -> Row:
        body = Body(b'{"text": "hello"}')
        return _offer(DIRECT, self._direct, body, at, {"service": [self._pid]})

    def governed(self, at: int) -> Row:
        return self._called(GOVERNED, message(self._tools[KEY_NAME], TEXT), at)

    def plain(self, at: int) -> Row:
        return self._called(PLAIN, message(self._tools[""], TEXT), at)

    def builtin(self, at: int) -> Row:
        return self._called(BUILTIN, MESSAGE[0], at)

    def json(self, at: int) -> Row:
        return _offer(JSON, self._stage.json_rpc(), entry(self._tools[KEY_NAME], TEXT), at, self._members())

    def _called(self, case: str, body: Body, at: int) -> Row:
        return _offer(case, self._stage.service("executor", ECHO), body, at, self._members())

    def _members(self) -> dict[str, Any]:
        return {**self._stage.members(), "service": [self._pid]}


def _offer(case: str, target: Target, body: Body, at: int, pids: dict[str, Any]) -> Row:
    return offer(SUITE, case, target, [body], concurrency=at, pids=pids, seconds=1.5, warm=0.5)


def _beside_service(ways: _Ways, at: int) -> Iterator[Row]:
    by = "rps" if at > 1 else "p50_ms"
    service, governed = in_turns(partial(ways.direct, at), partial(ways.governed, at), rounds=3, by=by)
    yield service
    yield governed.against(service)
    yield ways.json(at).against(service)
    without, inside = ways.plain(at), ways.builtin(at)
    yield without.against(service)
    for other, name in ((without, "a call without a secret"), (inside, "a tool inside the executor")):
        yield replace(governed, case=f"the same, against {name}").against(other)


def _register(stage: Stage, port: int, secret: str) -> str:
    """Register the service as a tool, with or without a secret, and wait until the executor calls it."""
    name = "with_secret" if secret else "without_secret"
    manifest = manifest_from(_manifest(port, name, secret))
    with registry_channel(stage) as channel:
        RegistryServiceStub(channel).RegisterTool(pb.RegisterToolRequest(manifest=manifest), timeout=60)
    qualified = f"{NAMESPACE}.{name}"
    with stage.mesh.direct_channel("executor") as channel:
        wait_until(partial(_answers, channel, qualified, stage.token), f"the tool {qualified}")
    return qualified


def _answers(channel: grpc.Channel, tool: str, token: str) -> bool:
    try:
        invoke(channel, tool, b'{"text": "hello"}', token=token)
    except grpc.RpcError:
        return False
    return True


def _manifest(port: int, name: str, secret: str) -> dict[str, Any]:
    text = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    use = {"secret": f"secret://{secret}", "place": "header", "name": "Authorization", "prefix": "Bearer "}
    return {
        "schema_version": "0.2.0",
        "tool_id": name,
        "namespace": NAMESPACE,
        "version": "1.0.0",
        "title": "Echo of a service",
        "description": "Answers with the text that it is sent.",
        "provider": "bench",
        "kind": "custom",
        "protocol": "custom",
        "input": {"schema": text},
        "output": {"schema": text},
        "interface": {"safety": {"concurrency_safe": True, "read_only": True, "non_destructive": True}},
        "execution": {
            "runner": "http",
            "timeout_class": "standard",
            "access_tier": "network",
            "network_policy": {"allowed_domains": ["127.0.0.1"], "allowed_ports": [port]},
            "http": {
                "method": "post",
                "url": f"http://127.0.0.1:{port}/",
                **({"secrets": [use]} if secret else {}),
            },
        },
        "permission": {"required_scopes": ["tools:call"]},
        "mutation_class": "read_only",
        "observability": {"audit_detail": "summary"},
    }
