"""What running a tool costs, by where it runs: in the executor, in a warm worker, in a fresh sandbox, and under another kernel.

Everything is a governed call over gRPC, alone, against an empty call of the same run: what differs from one case to the next is only
the runner.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
from toolmesh.executor.v1 import executor_service_pb2 as pb
from toolmesh.registry.v1 import registry_service_pb2 as registry_pb
from toolmesh.registry.v1.registry_service_pb2_grpc import RegistryServiceStub
from toolmesh_sdk.manifest import manifest_from

from bench.floor import ECHO, EMPTY
from bench.generator import Body, in_turns, offer
from bench.machine import MEGABYTE, family, resident_bytes
from bench.rows import Row
from bench.stage import Stage

PACK = Path(__file__).parents[2] / "examples" / "packs" / "textkit" / "manifests"
WORDS = {"text": "one two two three three three"}
OUTLINE = {"document": "# One\n\n## Two\n"}


def run(stage: Stage) -> Iterator[Row]:
    """Measure each place to run beside the floor."""
    idle = resident_bytes(family(stage.parts["executor"][1]))
    yield Row("executor", "idle executor", more={"MB": round(idle / MEGABYTE, 1)})
    yield _beside_floor(stage, "builtin tool, all governance", "echo", {"text": "hello"}).aimed("p50", "<=", 2.5)
    gvisor = _register(stage)
    yield _beside_floor(stage, "warm Python worker", "bench.words_process", WORDS).aimed("p50", "<=", 3.5)
    yield _worker_memory(stage)
    yield _beside_floor(stage, "cold bubblewrap", "bench.outline_process", OUTLINE)
    if not gvisor:
        yield Row("executor", "gVisor is not on this machine; `make gvisor` fetches it")
        return
    yield _beside_floor(stage, "warm Python worker, gVisor", "bench.words_kernel", WORDS)
    yield _beside_floor(stage, "cold gVisor", "bench.outline_kernel", OUTLINE, seconds=4.0)


def _beside_floor(stage: Stage, case: str, tool: str, arguments: dict[str, Any], seconds: float = 1.5) -> Row:
    body = Body(pb.InvokeRequest(tool=tool, arguments=json.dumps(arguments).encode()).SerializeToString())
    _reached(stage, body)

    def floor() -> Row:
        target, pids = stage.floor(EMPTY), [stage.floor_pid]
        return offer("executor", "an empty call", target, [Body(b"")], concurrency=1, pids=pids, seconds=seconds)

    def governed() -> Row:
        target = stage.service("executor", ECHO)
        return offer("executor", case, target, [body], concurrency=1, pids=stage.pids(), seconds=seconds)

    alone, measured = in_turns(floor, governed, rounds=3)
    return measured.against(alone)


def _reached(stage: Stage, body: Body) -> None:
    """Call once, so that a tool that cannot run here says so before anything is measured."""
    target = stage.service("executor", ECHO)
    row = offer("executor", "first call", target, [body], concurrency=1, seconds=0.5, warm=0.0)
    if row.more.get("failed"):
        raise RuntimeError(f"the tool does not run: {row.more['failures']}")


def _worker_memory(stage: Stage) -> Row:
    """What lives below the executor now: the launcher that all sandboxes share, and one worker in its sandbox."""
    below = family(stage.parts["executor"][1])[1:]
    found = {"MB": round(resident_bytes(below) / MEGABYTE, 1), "processes": len(below)}
    return Row("executor", "one warm worker, with sandbox and launcher", more=found)


def _register(stage: Stage) -> bool:
    """Register the sample tools once for each tier; say whether the stronger one can run here."""
    pair = ((stage.pki / "operator.key").read_bytes(), (stage.pki / "operator.pem").read_bytes())
    credentials = grpc.ssl_channel_credentials((stage.pki / "ca.pem").read_bytes(), *pair)
    target = [("grpc.ssl_target_name_override", "registry")]
    with grpc.secure_channel(stage.parts["registry"][0], credentials, options=target) as channel:
        registry = RegistryServiceStub(channel)
        for tier in ("process", "kernel"):
            for file, name in (("word_statistics", "words"), ("outline_document", "outline")):
                document = json.loads((PACK / f"{file}.json").read_text())
                document |= {"namespace": "bench", "provider": "bench", "tool_id": f"{name}_{tier}"}
                document["interface"]["safety"]["sandbox_tier"] = tier
                registry.RegisterTool(registry_pb.RegisterToolRequest(manifest=manifest_from(document)))
    return _runs(stage, "bench.words_kernel")


def _runs(stage: Stage, tool: str) -> bool:
    body = Body(pb.InvokeRequest(tool=tool, arguments=json.dumps(WORDS).encode()).SerializeToString())
    target = stage.service("executor", ECHO)
    return not offer("executor", "probe", target, [body], concurrency=1, seconds=0.5, warm=0.0).more.get("failed")
