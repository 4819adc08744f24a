"""Certificates replaced while a server and its clients run: new connections use them, running calls go on."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from libs.common.rpc import tls_files
from libs.common.rpc.client import channel_to
from libs.common.rpc.server import server_credentials
from libs.common.runtime.settings import Address
from libs.common.tests.rpc.tls_folder import TlsFolder

ECHO, FEED, WHO = "/x.Echo/Echo", "/x.Echo/Feed", "/x.Echo/Who"


@pytest.fixture(autouse=True)
def always_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_files, "CHECK_SECONDS", 0.0)


class Peer:
    """A server over mutual TLS, the folders of both sides, and the stream that it serves."""

    def __init__(self, pki: Any, folder: Path) -> None:
        self.own, self.callers = TlsFolder(folder / "server"), TlsFolder(folder / "client")
        self.own.replace(pki, "authz")
        self.callers.replace(pki, "executor")
        self.parts: asyncio.Queue[bytes] = asyncio.Queue()
        self.server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        methods: dict[str, Any] = {"Echo": unary(self._echo), "Feed": stream(self._feed), "Who": unary(self._who)}
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("x.Echo", methods),))
        self.port = self.server.add_secure_port("127.0.0.1:0", server_credentials(self.own))

    def channel(self) -> Any:
        return channel_to("authz", Address("127.0.0.1", self.port), self.callers, for_callers=False)

    async def _echo(self, request: bytes, context: Any) -> bytes:
        return request

    async def _who(self, request: bytes, context: Any) -> bytes:
        return bytes(context.auth_context()["x509_subject_alternative_name"][0])

    async def _feed(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield b"begun"
        while part := await self.parts.get():
            yield part


@pytest.fixture
async def peer(pki: Any, tmp_path: Path) -> AsyncIterator[Peer]:
    peer = Peer(pki, tmp_path)
    await peer.server.start()
    yield peer
    await peer.server.stop(None)


async def call(channel: Any, method: str = ECHO) -> bytes:
    return bytes(await channel.unary_unary(method)(b"hi", timeout=60))


async def test_calls_use_a_new_certificate_and_a_running_stream_goes_on(pki: Any, peer: Peer) -> None:
    async with peer.channel() as channel:
        who = channel.unary_unary(WHO)
        assert (await who(b"", timeout=60)).endswith(b"/executor")
        stream = channel.unary_stream(FEED)(b"")
        assert await stream.read() == b"begun"
        peer.callers.replace(pki, "gateway")
        assert (await who(b"", timeout=60)).endswith(b"/gateway")
        gc.collect()
        await peer.parts.put(b"more")
        assert await stream.read() == b"more"
        await peer.parts.put(b"")
        assert await stream.read() is grpc.aio.EOF


async def test_both_sides_follow_another_authority(peer: Peer, other_pki: Any) -> None:
    async with peer.channel() as old, peer.channel() as fresh:
        assert await call(old) == b"hi"
        peer.own.replace(other_pki, "authz")
        # A connection that exists goes on.
        assert await call(old) == b"hi"
        peer.callers.replace(other_pki, "executor")
        assert await call(old) == await call(fresh) == b"hi"


async def test_a_certificate_of_the_former_authority_is_refused(peer: Peer, other_pki: Any) -> None:
    peer.own.replace(other_pki, "authz")
    async with peer.channel() as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(ECHO)(b"hi", timeout=60, wait_for_ready=False)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
