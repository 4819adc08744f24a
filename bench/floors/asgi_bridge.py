"""The floor of the edge: JSON over HTTP in, one gRPC call to the echo, JSON out, with the same server and the same
mutual TLS as the gateway,
and nothing of what the gateway is for."""

from __future__ import annotations

import asyncio
import signal
import ssl
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import orjson
import uvicorn
import uvloop
from toolmesh.executor.v1 import executor_service_pb2 as pb
from toolmesh.executor.v1 import executor_service_pb2_grpc as rpc

Message = MutableMapping[str, Any]


class Bridge:
    """Answers every POST with what the echo says to its arguments."""

    def __init__(self, echo: Any) -> None:
        self._echo = echo

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        body, more = b"", True
        while more:
            piece = await receive()
            body, more = body + piece.get("body", b""), piece.get("more_body", False)
        asked = orjson.loads(body)
        params = asked["params"]
        request = pb.InvokeRequest(tool=params["tool"], arguments=orjson.dumps(params["arguments"]))
        answer = await self._echo.Invoke(request, timeout=30)
        result = orjson.loads(answer.result.structured_content)
        text = orjson.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": {"structured_content": result}})
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(text))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": text})


async def serve(port: int, echo_port: int, folder: Path) -> None:
    """Serve until terminated."""
    pair = ((folder / "gateway.key").read_bytes(), (folder / "gateway.pem").read_bytes())
    credentials = grpc.ssl_channel_credentials((folder / "ca.pem").read_bytes(), *pair)
    options = [("grpc.ssl_target_name_override", "executor")]
    async with grpc.aio.secure_channel(f"127.0.0.1:{echo_port}", credentials, options=options) as channel:
        app = Bridge(rpc.ExecutorServiceStub(channel))
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                port=port,
                http="httptools",
                ws="none",
                lifespan="off",
                interface="asgi3",
                access_log=False,
                log_level="critical",
                ssl_certfile=folder / "gateway.pem",
                ssl_keyfile=str(folder / "gateway.key"),
                ssl_ca_certs=str(folder / "ca.pem"),
                ssl_cert_reqs=ssl.CERT_REQUIRED,
            )
        )
        # It may be told to end before it would listen for that itself.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: setattr(server, "should_exit", True))
        await server.serve()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
