"""The least that evidence costs: the bare echo, with one record durable before it runs and one before it answers, and nothing else.

Two processes, as in the mesh: the echo sends records over one stream to a log, which commits what came together with one statement and
keeps the root of a Merkle tree beside it. Nobody is asked who calls; nothing is checked, decided, redacted or counted.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import psycopg
import uvloop
from toolmesh.executor.v1 import executor_service_pb2 as pb
from toolmesh.executor.v1 import executor_service_pb2_grpc as rpc

DATABASE = "BENCH_DATABASE"
_SERVICE, _METHOD = "bench.Log", "Append"
# About as long as a record of the mesh.
_RECORD = b"x" * 900
_TABLES = """
drop table if exists bench_durable; drop table if exists bench_durable_head;
create table bench_durable (sequence bigint primary key, leaf bytea, record bytea);
create table bench_durable_head (size bigint, root bytea);
insert into bench_durable_head values (0, '')
"""
_COMMIT = """
with added as (insert into bench_durable select * from unnest(%b::int8[], %b::bytea[], %b::bytea[]))
update bench_durable_head set size = %b, root = %b
"""


class Log:
    """Commits each message of a stream, and answers once it is durable."""

    def __init__(self, url: str) -> None:
        connection = psycopg.connect(url, autocommit=True)
        connection.execute(_TABLES)
        self._cursor = connection.cursor()
        self._size, self._roots = 0, list[bytes]()

    async def append(self, requests: Any, context: Any) -> None:
        while (message := await context.read()) is not grpc.aio.EOF:
            records = message.split(b"\n")
            leaves = [self._added(record) for record in records]
            places = range(self._size - len(records), self._size)
            # Waited for where it stands: there is nothing else to do.
            self._cursor.execute(_COMMIT, (list(places), leaves, records, self._size, self._root()), prepare=True)
            await context.write(b"")

    def _added(self, record: bytes) -> bytes:
        leaf = node = hashlib.sha256(b"\x00" + record).digest()
        size = self._size
        while size & 1:
            node, size = hashlib.sha256(b"\x01" + self._roots.pop() + node).digest(), size >> 1
        self._roots.append(node)
        self._size += 1
        return leaf

    def _root(self) -> bytes:
        root, *others = self._roots[::-1]
        for other in others:
            root = hashlib.sha256(b"\x01" + other + root).digest()
        return root


class Echo(rpc.ExecutorServiceServicer):
    """Answers with the arguments, once two records are durable, one after the other."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stream: Any = channel.stream_stream(f"/{_SERVICE}/{_METHOD}")()
        self._waiting, self._sent = list[asyncio.Future[None]](), list[asyncio.Future[None]]()
        self._due = asyncio.Event()
        self._joined = 0

    async def Invoke(self, request: Any, context: Any) -> Any:
        await self._durable()
        response = pb.InvokeResponse()
        response.result.structured_content = request.arguments
        await self._durable()
        return response

    def _durable(self) -> asyncio.Future[None]:
        """Return what is done once one more record is durable. It waits for a turn of the loop in which no other joined, as in the mesh."""
        loop = asyncio.get_running_loop()
        self._waiting.append(loop.create_future())
        if len(self._waiting) == 1 and not self._sent:
            loop.call_soon(self._look)
        return self._waiting[-1]

    def _look(self) -> None:
        if len(self._waiting) == self._joined:
            self._due.set()
        else:
            self._joined = len(self._waiting)
            asyncio.get_running_loop().call_soon(self._look)

    async def converse(self) -> None:
        """Send what waits, one message at a time."""
        while True:
            await self._due.wait()
            self._due.clear()
            self._sent, self._waiting, self._joined = self._waiting, [], 0
            await self._stream.write(b"\n".join([_RECORD] * len(self._sent)))
            if await self._stream.read() is grpc.aio.EOF:
                raise RuntimeError("the log ended the stream")
            for waiting in self._sent:
                if not waiting.done():
                    waiting.set_result(None)
            self._sent = []
            if self._waiting:
                self._look()


def _pair(folder: Path, name: str) -> tuple[bytes, bytes]:
    return (folder / f"{name}.key").read_bytes(), (folder / f"{name}.pem").read_bytes()


async def serve(part: str, port: int, folder: Path, log_port: int) -> None:
    """Serve the log or the echo until terminated."""
    server, authority = grpc.aio.server(), (folder / "ca.pem").read_bytes()
    if part == "log":
        name, method = "audit", grpc.stream_stream_rpc_method_handler(Log(os.environ[DATABASE]).append)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: method}),))
    else:
        name, credentials = "executor", grpc.ssl_channel_credentials(authority, *_pair(folder, "executor"))
        target = [("grpc.ssl_target_name_override", "audit")]
        echo = Echo(grpc.aio.secure_channel(f"127.0.0.1:{log_port}", credentials, options=target))  # type: ignore[abstract]
        rpc.add_ExecutorServiceServicer_to_server(echo, server)
        conversing = asyncio.create_task(echo.converse())
        conversing.add_done_callback(lambda task: os.kill(os.getpid(), signal.SIGTERM))
    own = grpc.ssl_server_credentials([_pair(folder, name)], authority, require_client_auth=True)
    server.add_secure_port(f"127.0.0.1:{port}", own)
    await server.start()
    done = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, done.set)
    await done.wait()
    await server.stop(0)


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])))
