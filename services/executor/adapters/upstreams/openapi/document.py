"""An OpenAPI document at a URL, at a path or of the upstream itself. It is read again only when it changed."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpcore
import msgspec
from toolmesh.registry.v1 import upstream_pb2
from toolmesh.registry.v1 import upstream_service_pb2 as pb

from services.executor.adapters.runners.http.connections import (
    ForbiddenAddressError,
    HttpConnections,
    UnresolvedHostError,
)
from services.executor.adapters.upstreams.mcp.transport import ServerLostError
from services.executor.adapters.upstreams.openapi.reader import MAX_DOCUMENT_BYTES, Answer, selection_argument
from services.executor.adapters.upstreams.source import bounded_tools
from services.executor.domain.openapi.operations import ApiDescription, Selection

_READ_SECONDS = 90.0
_FILE_POLL_SECONDS, _URL_POLL_SECONDS = 30.0, 300.0
_MAX_PROBLEM = 500
_NOT_MODIFIED = 304
_ANSWERS = msgspec.json.Decoder(Answer)


class OpenApiSource:
    """One document. Its discovery is kept until the bytes of the document change."""

    def __init__(self, endpoint: upstream_pb2.OpenApiEndpoint, connections: HttpConnections) -> None:
        """The connections belong to the source from now on."""
        self._endpoint, self._connections = endpoint, connections
        self._selection = Selection(tuple(endpoint.operations), endpoint.server, endpoint.url)
        self._validators: list[tuple[bytes, bytes]] = []
        self._content_digest = b""
        self._discovery: pb.Discovery | None = None
        self.poll_seconds = _FILE_POLL_SECONDS if endpoint.path else _URL_POLL_SECONDS

    async def discover(self) -> pb.Discovery:
        """Implement `Source.discover`."""
        payload = await self._payload()
        if payload is not None or self._discovery is None:
            self._discovery = await self._described(payload or b"")
        return self._discovery

    async def _payload(self) -> bytes | None:
        """Return the document; None if its server says that it did not change."""
        if self._endpoint.WhichOneof("document") == "content":
            return self._endpoint.content
        return await self._fetch() if self._endpoint.url else await asyncio.to_thread(self._read)

    async def close(self) -> None:
        """Implement `Source.close`."""
        await self._connections.close()

    async def _described(self, payload: bytes) -> pb.Discovery:
        content_digest = await asyncio.to_thread(lambda: hashlib.sha256(payload).digest())
        if self._discovery is None or content_digest != self._content_digest:
            api = await read_in_process(payload, self._selection)
            self._discovery, self._content_digest = _discovery(api), content_digest
        return self._discovery

    def _read(self) -> bytes:
        """Read the file. Blocking."""
        try:
            with Path(self._endpoint.path).open("rb") as file:
                payload = file.read(MAX_DOCUMENT_BYTES + 1)
        except OSError:
            raise ServerLostError("the document cannot be read on the executor's machine") from None
        _check_size(len(payload))
        return payload

    async def _fetch(self) -> bytes | None:
        """Fetch the document; None if the server says that it did not change."""
        url = urlsplit(self._endpoint.url)
        headers = [
            (b"host", url.netloc.encode()),
            (b"accept", b"application/json, */*;q=0.5"),
            (b"accept-encoding", b"identity"),
            (b"user-agent", b"toolmesh"),
            *(self._validators if self._discovery is not None else ()),
        ]
        try:
            response = await self._connections.send(
                url.scheme, httpcore.Request("GET", self._endpoint.url, headers=headers)
            )
        except (ForbiddenAddressError, UnresolvedHostError):
            raise ServerLostError("the document's host has no address that this executor may connect to") from None
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError):
            raise ServerLostError("the document's server cannot be reached") from None
        try:
            return await self._read_response(response)
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError):
            raise ServerLostError("the document's server closed the connection before it answered") from None
        finally:
            await response.aclose()

    async def _read_response(self, response: httpcore.Response) -> bytes | None:
        if response.status == _NOT_MODIFIED and self._discovery is not None:
            return None
        if response.status != 200:
            raise ServerLostError(f"the document's server answered with HTTP status {response.status}")
        payload = bytearray()
        async for chunk in response.aiter_stream():
            payload += chunk
            _check_size(len(payload))
        sent = {name.lower(): value for name, value in response.headers}
        conditions = {b"if-none-match": sent.get(b"etag"), b"if-modified-since": sent.get(b"last-modified")}
        self._validators = [(name, value) for name, value in conditions.items() if value and len(value) < 1024]
        return bytes(payload)


async def read_in_process(payload: bytes, selection: Selection) -> ApiDescription:
    """Return the operations of a document, read by a process of its own. Raises ServerLostError and TimeoutError."""
    command = [sys.executable, "-m", "services.executor.adapters.upstreams.openapi.reader"]
    process = await asyncio.create_subprocess_exec(
        *command,
        selection_argument(selection),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        # Nothing of the executor's environment, which holds its credentials.
        env={key: value for key, value in os.environ.items() if key in ("PATH", "PYTHONPATH", "LANG")},
    )
    try:
        async with asyncio.timeout(_READ_SECONDS):
            output, _ = await process.communicate(payload)
        if process.returncode:
            raise ServerLostError("the document cannot be read within its limits")
        answer = await asyncio.to_thread(_ANSWERS.decode, output)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if answer.api is None:
        raise ServerLostError(answer.problem)
    return answer.api


def _check_size(size: int) -> None:
    if size > MAX_DOCUMENT_BYTES:
        raise ServerLostError(f"the document has more than {MAX_DOCUMENT_BYTES} bytes")


def _discovery(api: ApiDescription) -> pb.Discovery:
    tools = [
        pb.DiscoveredTool(native_name=each.native_name, definition=each.definition, problem=each.problem[:_MAX_PROBLEM])
        for each in api.operations
    ]
    return pb.Discovery(
        server_name=api.title,
        server_version=api.version,
        protocol_version=f"OpenAPI {api.openapi}"[:32],
        tools=bounded_tools(tools),
    )
