"""The floor: what grpc.aio on uvloop with mutual TLS costs by itself. Everything is measured against it.

Two methods: one that takes nothing and answers nothing, and an echo with the messages of a tool call.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import uvloop
from toolmesh.executor.v1 import executor_service_pb2 as pb
from toolmesh.executor.v1 import executor_service_pb2_grpc as rpc

EMPTY = "/bench.Floor/Empty"
ECHO = "/toolmesh.executor.v1.ExecutorService/Invoke"


class Echo(rpc.ExecutorServiceServicer):
    """Answers with the arguments."""

    async def Invoke(self, request: Any, context: Any) -> Any:
        response = pb.InvokeResponse()
        response.result.structured_content = request.arguments
        return response


async def _nothing(request: bytes, context: Any) -> bytes:
    return b""


async def serve(port: int, folder: Path) -> None:
    """Serve until terminated."""
    server = grpc.aio.server()
    # What it leaves out answers UNIMPLEMENTED.
    rpc.add_ExecutorServiceServicer_to_server(Echo(), server)  # type: ignore[abstract]
    empty: dict[str, Any] = {"Empty": grpc.unary_unary_rpc_method_handler(_nothing)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Floor", empty),))
    await serve_until_terminated(server, port, folder, "executor")


async def serve_until_terminated(server: grpc.aio.Server, port: int, folder: Path, name: str) -> None:
    """Serve what was added to a server, over mutual TLS under a name of the mesh, until the process is signaled."""
    pair = ((folder / f"{name}.key").read_bytes(), (folder / f"{name}.pem").read_bytes())
    credentials = grpc.ssl_server_credentials([pair], (folder / "ca.pem").read_bytes(), require_client_auth=True)
    server.add_secure_port(f"127.0.0.1:{port}", credentials)
    await server.start()
    done = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, done.set)
    await done.wait()
    await server.stop(0)


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), Path(sys.argv[2])))
