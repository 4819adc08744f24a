"""A program that stands where a service will: opens the ports of the contract with the identity it was given, and
answers.

Run as `python standin.py <name>`. The gateway speaks HTTPS, the others gRPC with the standard health service; all of
them
answer /readyz on the operations port, and what they were sent can be read back from them.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import sys
from pathlib import Path
from typing import Any

Handler = tuple[int, bytes]
# A request that holds this is never answered: its receiver ends.
DEADLY = b"core.deadly"


def listen(variable: str) -> tuple[str, int]:
    host, _, port = os.environ[variable].rpartition(":")
    return host, int(port)


async def read_request(reader: asyncio.StreamReader) -> tuple[str, str, dict[str, str], bytes] | None:
    line = (await reader.readline()).decode().split()
    if len(line) != 3:
        return None
    headers = {}
    while (text := (await reader.readline()).decode().strip()) != "":
        name, _, value = text.partition(":")
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return line[0], line[1], headers, body


def published_keys() -> bytes:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from jwt.algorithms import RSAAlgorithm

    keys = []
    for path in Path(os.environ["STANDIN_SIGNING_KEYS"]).glob("*.pem"):
        key = load_pem_private_key(path.read_bytes(), None)
        assert isinstance(key, RSAPrivateKey)
        keys.append(RSAAlgorithm.to_jwk(key.public_key(), as_dict=True) | {"kid": path.stem, "alg": "RS256"})
    return json.dumps({"keys": keys}).encode()


def answer(method: str, path: str, headers: dict[str, str], body: bytes) -> Handler:
    if path == "/.well-known/jwks.json":
        return 200, published_keys()
    if path in ("/readyz", "/healthz"):
        return 200, b"ok"
    return 200, json.dumps({"method": method, "path": path, "headers": headers, "size": len(body)}).encode()


async def serve_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while (request := await read_request(reader)) is not None:
            await asyncio.sleep(float(request[2].get("x-standin-delay", "0")))
            status, body = answer(*request)
            writer.write(f"HTTP/1.1 {status} OK\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
            await writer.drain()
            if request[2].get("connection") == "close":
                break
    except (ConnectionError, asyncio.IncompleteReadError):
        return
    finally:
        writer.close()


def tls() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=os.environ["TOOLMESH_TLS_CA"])
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(os.environ["TOOLMESH_TLS_CERT"], os.environ["TOOLMESH_TLS_KEY"])
    return context


def pem(kind: str) -> bytes:
    return Path(os.environ[f"TOOLMESH_TLS_{kind}"]).read_bytes()


async def serve_grpc(name: str) -> Any:
    import grpc
    from grpc_health.v1 import health, health_pb2, health_pb2_grpc

    class Echo(grpc.GenericRpcHandler):
        """Answers any method with the metadata of the call as JSON."""

        def service(self, details: grpc.HandlerCallDetails) -> Any:
            if details.method.startswith("/grpc."):
                return None

            async def call(request: bytes, context: Any) -> bytes:
                if DEADLY in request:
                    os.kill(os.getpid(), signal.SIGKILL)
                seen = {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}
                peer = [entry.decode() for entry in context.auth_context().get("x509_subject_alternative_name", [])]
                return json.dumps({"name": name, "metadata": seen, "peer": peer}).encode()

            return grpc.unary_unary_rpc_method_handler(call)

    credentials = grpc.ssl_server_credentials([(pem("KEY"), pem("CERT"))], pem("CA"), require_client_auth=True)
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    servicer = health.aio.HealthServicer()
    full_name = f"toolmesh.{name}.v1.{name.capitalize()}Service"
    await servicer.set(full_name, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    server.add_generic_rpc_handlers((Echo(),))
    server.add_secure_port(os.environ["TOOLMESH_LISTEN"], credentials)
    await server.start()
    return server


async def main(name: str) -> None:
    if name == "gateway":
        host, port = listen("TOOLMESH_LISTEN")
        await asyncio.start_server(serve_http, host, port, ssl=tls())
    elif not os.environ.get("STANDIN_LIGHT"):
        # The server ends with the object, so it must be held.
        globals()["server"] = await serve_grpc(name)
    host, port = listen("TOOLMESH_OPS_LISTEN")
    await asyncio.start_server(serve_http, host, port)
    ended = asyncio.Event()
    if os.environ.get("STANDIN_DEAF"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()


asyncio.run(main(sys.argv[1]))
