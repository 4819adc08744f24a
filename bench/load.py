"""A closed-loop load generator in a process of its own; prints one JSON object."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import httpx
import uvloop
from toolmesh.executor.v1 import executor_service_pb2 as pb
from toolmesh.executor.v1 import executor_service_pb2_grpc as rpc

ARGUMENTS = b'{"text":"hello"}'


async def grpc_calls(options: argparse.Namespace, latencies: list[float]) -> None:
    """Call Invoke as fast as answers come, from `concurrency` callers on one channel."""
    folder = Path(options.pki)
    pair = ((folder / "orchestrator.key").read_bytes(), (folder / "orchestrator.pem").read_bytes())
    credentials = grpc.ssl_channel_credentials((folder / "ca.pem").read_bytes(), *pair)
    target = [("grpc.ssl_target_name_override", "executor")]
    opened = (
        grpc.aio.insecure_channel(options.target)
        if options.way == "edge"
        else grpc.aio.secure_channel(options.target, credentials, options=target)
    )
    async with opened as channel:
        stub = rpc.ExecutorServiceStub(channel)
        metadata = (("authorization", f"Bearer {options.token}"),)
        request = pb.InvokeRequest(tool="echo", arguments=ARGUMENTS)

        async def one() -> None:
            await stub.Invoke(request, metadata=metadata, timeout=30)

        await _drive(one, options, latencies)


async def http_calls(options: argparse.Namespace, latencies: list[float]) -> None:
    """Call tools.invoke over JSON-RPC."""
    body = json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools.invoke",
            "params": {"tool": "echo", "arguments": {"text": "hello"}},
        }
    )
    headers = {"authorization": f"Bearer {options.token}", "content-type": "application/json"}
    limits = httpx.Limits(max_connections=options.concurrency)
    async with httpx.AsyncClient(base_url=options.target, headers=headers, limits=limits, timeout=30) as client:

        async def one() -> None:
            (await client.post("/rpc", content=body)).raise_for_status()

        await _drive(one, options, latencies)


async def _drive(one: Any, options: argparse.Namespace, latencies: list[float]) -> None:
    await one()
    begin = time.perf_counter()
    warm, end = begin + options.seconds * 0.2, begin + options.seconds * 1.2

    async def caller() -> None:
        while (start := time.perf_counter()) < end:
            await one()
            if start > warm:
                latencies.append(time.perf_counter() - start)

    await asyncio.gather(*(caller() for _ in range(options.concurrency)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=["direct", "edge", "jsonrpc"])
    parser.add_argument("target")
    parser.add_argument("--pki", default="")
    parser.add_argument("--token", default="")
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    latencies: list[float] = []
    uvloop.run((http_calls if options.way == "jsonrpc" else grpc_calls)(options, latencies))
    latencies.sort()
    at = {
        f"p{q}_ms": round(latencies[min(len(latencies) - 1, len(latencies) * q // 100)] * 1000, 3) for q in (50, 95, 99)
    }
    print(json.dumps({"rps": round(len(latencies) / options.seconds, 1), **at}))


if __name__ == "__main__":
    main()
