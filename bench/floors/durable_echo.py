"""The least that evidence costs: the bare echo, with one record durable before it runs and one before it answers, and
nothing else.

Two processes, as in the mesh: the echo sends records over one stream to a log, which commits what came together with
one statement and
keeps the root of a Merkle tree beside it. No authentication, validation, policy, redaction or counting.
"""

from __future__ import annotations

import asyncio
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

from bench.floors.echo import serve_until_terminated
from services.audit.domain.merkle.merkle import CompactRange, leaf_hash

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
        self._tree = CompactRange()

    async def append(self, requests: Any, context: Any) -> None:
        while (message := await context.read()) is not grpc.aio.EOF:
            records = message.split(b"\n")
            leaves, first = [leaf_hash(record) for record in records], self._tree.size
            self._tree = self._tree.extend(leaves)
            places = list(range(first, self._tree.size))
            # Waited for where it stands: there is nothing else to do.
            self._cursor.execute(_COMMIT, (places, leaves, records, self._tree.size, self._tree.root()), prepare=True)
            await context.write(b"")


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
        """Return what is done once one more record is durable. It waits for a turn of the loop in which no other
        joined, as in the mesh."""
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


async def serve(part: str, port: int, folder: Path, log_port: int) -> None:
    """Serve the log or the echo until terminated."""
    server = grpc.aio.server()
    if part == "log":
        method = grpc.stream_stream_rpc_method_handler(Log(os.environ[DATABASE]).append)  # type: ignore[var-annotated]
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: method}),))
        await serve_until_terminated(server, port, folder, "audit")
        return
    echo = Echo(_to_the_log(log_port, folder))  # type: ignore[abstract]
    rpc.add_ExecutorServiceServicer_to_server(echo, server)
    conversing = asyncio.create_task(echo.converse())
    # An echo without its log never answers; end it instead of waiting.
    conversing.add_done_callback(lambda task: task.cancelled() or os.kill(os.getpid(), signal.SIGTERM))  # type: ignore[func-returns-value]
    await serve_until_terminated(server, port, folder, "executor")


def _to_the_log(port: int, folder: Path) -> grpc.aio.Channel:
    pair = (folder / "executor.key").read_bytes(), (folder / "executor.pem").read_bytes()
    credentials = grpc.ssl_channel_credentials((folder / "ca.pem").read_bytes(), *pair)
    return grpc.aio.secure_channel(
        f"127.0.0.1:{port}", credentials, options=[("grpc.ssl_target_name_override", "audit")]
    )


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])))
