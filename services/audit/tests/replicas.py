"""In-process audit replicas with real mutual TLS and PostgreSQL, and a fake issuer of keys in place of authz."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import grpc.aio
import pytest
from toolmesh.audit.v1 import audit_record_pb2 as record_pb
from toolmesh.audit.v1 import audit_service_pb2 as pb
from toolmesh.audit.v1 import audit_service_pb2_grpc as rpc
from toolmesh.audit.v1 import log_service_pb2_grpc as log_rpc
from toolmesh.authz.v1 import authz_service_pb2 as authz_pb
from toolmesh.authz.v1 import authz_service_pb2_grpc as authz_rpc

from libs.common.errors import MeshError, Reason
from libs.common.rpc.application import RpcApplication
from libs.common.rpc.client import channel_to
from libs.common.rpc.status import from_rpc_error
from libs.common.runtime.settings import Address
from services.audit.tests.database import sql
from tests.harness.servers.issuer import accepts_every_token


class Keys(authz_rpc.AuthzServiceServicer):
    """Answers GetJwks with the keys of a signer."""

    def __init__(self, signer: Any) -> None:
        self._signer = signer

    async def GetJwks(self, request: Any, context: Any) -> Any:
        return authz_pb.GetJwksResponse(jwks=await self._signer.fetch_jwks())

    IntrospectToken = accepts_every_token


class Replica:
    """One audit process on a database, with client stubs."""

    def __init__(self, application: RpcApplication, url: str, pki: Any) -> None:
        self.application, self.url = application, url
        self._pki = pki
        self._channels: list[grpc.aio.Channel] = []
        self._ended = False

    def stub(self, name: str) -> Any:
        """Return a stub that calls as the peer of this name."""
        return rpc.AuditServiceStub(self._channel(name))

    def log(self, name: str = "operator") -> Any:
        """Return a stub of the log service."""
        return log_rpc.LogServiceStub(self._channel(name))

    def _channel(self, name: str) -> grpc.aio.Channel:
        identity = self._pki.of(name)
        files = SimpleNamespace(tls_cert=identity.cert, tls_key=identity.key, tls_ca=self._pki.ca)
        self._channels.append(channel_to("audit", Address("127.0.0.1", self.application.server.port), files))
        return self._channels[-1]

    async def append(self, *records: record_pb.AuditRecord) -> int:
        """Append one batch on a stream of its own; return the last sequence."""
        [acknowledged] = await append(self.stub("executor"), [records])
        return int(acknowledged.last_sequence)

    async def end(self) -> None:
        """Stop the process once, as SIGTERM does."""
        if not self._ended:
            self._ended = True
            await self.application.stop()

    async def close(self) -> None:
        """Stop the process and close the channels."""
        await self.end()
        for channel in self._channels:
            await channel.close()

    def stored(self) -> list[tuple[int, str, bytes, bytes]]:
        """Return sequence, record id, bytes and leaf hash of all records in log order."""
        return sql(self.url, "select sequence, record_id, canonical, leaf_hash from records order by sequence")


Start = Callable[[], Awaitable[Replica]]


async def append(stub: Any, batches: Sequence[Sequence[record_pb.AuditRecord]]) -> list[Any]:
    """Send batches on one stream, each after the acknowledgement of the one before; return the acknowledgements."""
    call = stub.AppendRecords()
    acknowledged = []
    for number, records in enumerate(batches, start=1):
        await call.write(pb.AppendRecordsRequest(batch=number, records=records))
        acknowledged.append(await answer(call))
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    return acknowledged


async def answer(call: Any) -> Any:
    """Return the next message of a stream, or raise the mesh error that ended it."""
    try:
        found = await call.read()
        if found is grpc.aio.EOF:
            raise AssertionError(f"the stream ended with {await call.code()}")
        return found
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error


async def reply(call: Any) -> Any:
    """Return the response of a call, or raise its mesh error."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error


async def reason_of(call: Awaitable[Any]) -> Reason:
    """Return the reason of a call that must fail."""
    with pytest.raises(MeshError) as caught:
        await asyncio.wait_for(call, 60)
    return caught.value.reason


async def take(call: Any, count: int) -> list[Any]:
    """Return the next records of a watch."""
    return [(await answer(call)).record for _ in range(count)]


async def every_page(stub: Any, **request: Any) -> AsyncIterator[list[Any]]:
    """Yield the pages of a query."""
    token = ""
    while True:
        page = await reply(stub.QueryRecords(pb.QueryRecordsRequest(page_token=token, **request)))
        yield list(page.records)
        token = page.next_page_token
        if not token:
            return
