"""Makes a registry large: the same tools in every run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from toolmesh.registry.v1 import discovery_service_pb2 as discovery
from toolmesh.registry.v1 import discovery_service_pb2_grpc as discovery_rpc
from toolmesh.registry.v1 import registry_service_pb2 as registry
from toolmesh.registry.v1 import registry_service_pb2_grpc as registry_rpc

from bench.catalogue import manifest
from bench.machine import resident_bytes
from bench.packs import registry_channel
from bench.rows import Row
from bench.stage import Stage
from tests.harness.replicas import another

# How many tools a full run registers; a shorter one says so.
TOOLS = int(os.environ.get("BENCH_TOOLS", "10000"))
WRITERS = 8


def register_tools(stage: Stage, suite: str, count: int) -> Iterator[Row]:
    """Register tools until there are so many of the catalogue, and yield how fast that went; nothing where there are as many already.

    A registration costs the registry tens of milliseconds, so a second one shares the work and leaves when it is done.
    """
    missing = range(stage.tools, count)
    if not missing:
        return
    if not stage.tools:
        # Its own process: the language model beside it holds the same for one tool and for ten thousand, and ends when nobody asks.
        stage.empty_registry = resident_bytes([stage.parts["registry"][1]])
    with another(stage.mesh, "registry", stage.folder) as second:
        begin = time.perf_counter()
        with registry_channel(stage) as here, registry_channel(stage, second.address) as there:
            _register(missing, [registry_rpc.RegistryServiceStub(channel) for channel in (here, there)])
        rate = len(missing) / (time.perf_counter() - begin)
        # Asked to leave, it hands over what it was working on; killed, it would keep that until its time is over.
        second.process.terminate()
        second.process.wait()
    stage.tools = count
    yield Row(suite, "RegisterTool, two registries", WRITERS, rps=round(rate, 1), more={"tools": len(missing)})


def _register(numbers: range, stubs: list[registry_rpc.RegistryServiceStub]) -> None:
    def one(number: int) -> Any:
        request = registry.RegisterToolRequest(manifest=manifest(number))
        return stubs[number % len(stubs)].RegisterTool(request, timeout=60)

    with ThreadPoolExecutor(WRITERS) as pool:
        for _ in pool.map(one, numbers):
            pass


def wait_for_meaning(channel: grpc.Channel, patience: float) -> int:
    """Wait until the meaning of every tool is known, or for so many seconds; return how many are still waited for."""
    stub, begin = discovery_rpc.DiscoveryServiceStub(channel), time.perf_counter()
    ask = discovery.SearchToolsRequest(query="tell my team that the build is broken")
    while (pending := int(stub.SearchTools(ask, timeout=60).semantic_pending)) > 0:
        if time.perf_counter() - begin > patience:
            break
        time.sleep(1)
    return pending
