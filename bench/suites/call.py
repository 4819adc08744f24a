"""A governed call against a bare one: the same echo, over gRPC straight, through Envoy, and as JSON-RPC."""

from __future__ import annotations

import json
from collections.abc import Iterator

from toolmesh.executor.v1 import executor_service_pb2 as pb

from bench.floor import ECHO
from bench.generator import Body, Target, offer
from bench.rows import Row
from bench.stage import Stage

ARGUMENTS = b'{"text":"hello"}'
CONCURRENCIES = (1, 16, 64)


def run(stage: Stage) -> Iterator[Row]:
    """Measure every way at each concurrency, the floor beside what is measured against it."""
    message = [Body(pb.InvokeRequest(tool="echo", arguments=ARGUMENTS).SerializeToString())]
    call = {"tool": "echo", "arguments": json.loads(ARGUMENTS)}
    entry = [Body(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools.invoke", "params": call}).encode())]
    for concurrency in CONCURRENCIES:

        def measure(case: str, target: Target, bodies: list[Body], pids: list[int], at: int = concurrency) -> Row:
            return offer("call", case, target, bodies, concurrency=at, pids=pids)

        floor = measure("bare grpc.aio echo", stage.floor(ECHO), message, [stage.floor_pid])
        yield floor
        everyone = stage.pids()
        direct = measure("governed echo, gRPC", stage.service("executor", ECHO), message, everyone).against(floor)
        yield direct.aimed("p50", "<=", 7) if concurrency == 1 else direct.aimed("rps", ">=", 0.5)
        yield measure("governed echo, gRPC through Envoy", stage.edge(ECHO), message, everyone).against(floor)
        yield measure("governed echo, JSON-RPC through Envoy", stage.json_rpc(), entry, everyone).against(floor)
