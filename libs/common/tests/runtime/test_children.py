"""Other programs, started from a process that serves calls meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys

PARENT = """
import asyncio

from libs.common.runtime import process

import grpc
import grpc.aio
import uvloop


async def nothing(request, context):
    return b""


async def main():
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    methods = {"Call": grpc.unary_unary_rpc_method_handler(nothing)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a.B", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call, over = channel.unary_unary("/a.B/Call"), asyncio.Event()

        async def calls():
            while not over.is_set():
                await call(b"")

        calling = [asyncio.ensure_future(calls()) for _ in range(8)]
        ended = [await (await asyncio.create_subprocess_exec("true")).wait() for _ in range(400)]
        over.set()
        await asyncio.gather(*calling)
    print("died:", sum(map(bool, ended)))
    await server.stop(0)


uvloop.run(main())
"""


def test_children_begin_whatever_grpc_is_doing() -> None:
    # As a service starts: with nothing said to gRPC that the tests are told.
    given = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_ENABLE")}
    command = [sys.executable, "-c", PARENT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, env=given)
    assert done.stdout == "died: 0\n"
