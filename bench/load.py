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
    """Call tools.invoke over JSON-RPC, each caller on a connection of its own, by hand: a client library would be the bottleneck."""
    call = {"tool": "echo", "arguments": {"text": "hello"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools.invoke", "params": call}).encode()
    host, _, port = options.target.removeprefix("http://").rpartition(":")
    head = f"POST /rpc HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {options.token}\r\ncontent-type: application/json\r\n"
    request = head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body
    free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def one() -> None:
        reader, writer = free.pop() if free else await asyncio.open_connection(host, int(port))
        writer.write(request)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        await reader.readexactly(int(answer.split(b"content-length: ")[1].split(b"\r\n")[0]))
        if not answer.startswith(b"http/1.1 200"):
            raise RuntimeError(answer.decode())
        free.append((reader, writer))

    await _drive(one, options, latencies)
    for _, writer in free:
        writer.close()


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
