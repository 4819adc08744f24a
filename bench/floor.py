"""The floor: an echo over grpc.aio on uvloop with TLS and nothing else. What a governed call costs is measured against it."""

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


class Echo(rpc.ExecutorServiceServicer):
    """Answers with the arguments."""

    async def Invoke(self, request: Any, context: Any) -> Any:
        response = pb.InvokeResponse()
        response.result.structured_content = request.arguments
        return response


async def serve(port: int, folder: Path) -> None:
    server = grpc.aio.server()
    rpc.add_ExecutorServiceServicer_to_server(Echo(), server)
    pair = ((folder / "executor.key").read_bytes(), (folder / "executor.pem").read_bytes())
    credentials = grpc.ssl_server_credentials([pair], (folder / "ca.pem").read_bytes(), require_client_auth=True)
    server.add_secure_port(f"127.0.0.1:{port}", credentials)
    await server.start()
    done = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, done.set)
    await done.wait()
    await server.stop(0)


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), Path(sys.argv[2])))
