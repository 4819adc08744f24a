"""Certificates replaced while the HTTP server runs."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from libs.common.rpc import tls_files
from libs.common.tests.rpc.tls_folder import TlsFolder
from services.gateway.transport.server.rotating_context import RotatingContext


@pytest.fixture
def folder(pki: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TlsFolder:
    monkeypatch.setattr(tls_files, "CHECK_SECONDS", 0.0)
    folder = TlsFolder(tmp_path / "tls")
    folder.replace(pki, "gateway")
    return folder


@pytest.fixture
async def port(folder: TlsFolder) -> AsyncIterator[int]:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=RotatingContext(folder).first)
    async with server:
        yield server.sockets[0].getsockname()[1]


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(port: int, pki: Any, name: str = "") -> Streams:
    """Connect as the edge, with or without a server name."""
    context = ssl.create_default_context(cafile=str(pki.ca))
    context.check_hostname = bool(name)
    identity = pki.of("edge")
    context.load_cert_chain(identity.cert, identity.key)
    return await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name or "")


async def answers(streams: Streams) -> bool:
    reader, writer = streams
    writer.write(b"hi\n")
    return await reader.readline() == b"hi\n"


@pytest.mark.parametrize("name", ["gateway", ""])
async def test_new_connections_use_the_new_files_and_old_ones_go_on(
    port: int, pki: Any, other_pki: Any, folder: TlsFolder, name: str
) -> None:
    before = await connect(port, pki, name)
    assert await answers(before)
    folder.replace(other_pki, "gateway")
    after = await connect(port, other_pki, name)
    assert await answers(after)
    assert await answers(before)
    # The former authority's certificates are refused now.
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await connect(port, pki, name)
    for _, writer in (before, after):
        writer.close()


async def test_a_caller_without_a_certificate_is_refused_before_and_after(
    port: int, pki: Any, folder: TlsFolder
) -> None:
    for identity in ("gateway", "executor"):
        folder.replace(pki, identity)
        context = ssl.create_default_context(cafile=str(pki.ca))
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=identity)
        writer.write(b"hi\n")
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(3)
