"""OpenAPI documents at paths and URLs, read by the real process."""

from __future__ import annotations

import ipaddress
import json
from pathlib import Path
from typing import Any

import pytest
from toolmesh.registry.v1 import upstream_pb2

from services.executor.adapters.runners.http.connections import HttpConnections
from services.executor.adapters.upstreams.mcp.transport import ServerLostError
from services.executor.adapters.upstreams.openapi import document as module
from services.executor.adapters.upstreams.openapi.document import OpenApiSource
from services.executor.adapters.upstreams.source import MAX_DISCOVERY_BYTES
from tests.harness.servers.rest_server import document, rest_server

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"),)


def source(internal: Any = LOOPBACK, **endpoint: Any) -> OpenApiSource:
    return OpenApiSource(upstream_pb2.OpenApiEndpoint(**endpoint), HttpConnections(internal))


async def test_a_file_is_read_and_read_again_only_when_it_changed(tmp_path: Path) -> None:
    path = tmp_path / "api.json"
    path.write_text(json.dumps(document()))
    api = source(path=str(path), server="https://library.example")
    first = await api.discover()
    assert (first.server_name, first.server_version, first.protocol_version) == ("Library", "7", "OpenAPI 3.0.3")
    assert {tool.native_name for tool in first.tools} == {"shelves/get", "books/add", "books/upload", "search"}
    assert await api.discover() is first
    path.write_text(json.dumps(document(summary="Another")))
    assert (await api.discover()).tools[0].definition != first.tools[0].definition
    await api.close()


async def test_a_document_of_the_upstream_itself_is_read_without_a_file() -> None:
    api = source(content=json.dumps(document()).encode(), server="https://library.example")
    assert {tool.native_name for tool in (await api.discover()).tools} >= {"shelves/get", "search"}
    await api.close()


async def test_a_url_is_fetched_from_allowed_addresses_only() -> None:
    with rest_server() as server:
        url = f"{server.url}/openapi.json"
        api = source(url=url)
        definition = json.loads((await api.discover()).tools[0].definition)
        assert definition["server"] == f"{server.url}/v1"
        await api.close()
        outside = source((), url=url)
        with pytest.raises(ServerLostError):
            await outside.discover()
        await outside.close()


@pytest.mark.parametrize("content", [b"", b"{", b'{"openapi": "2.0"}', b"openapi: 3.0.0", b"[" * 5000, b"\xff"])
async def test_what_is_no_document_is_said_so(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "api.json"
    path.write_bytes(content)
    with pytest.raises(ServerLostError):
        await source(path=str(path)).discover()


async def test_documents_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "api.json"
    path.write_text(json.dumps(document()))
    monkeypatch.setattr(module, "MAX_DOCUMENT_BYTES", 100)
    with pytest.raises(ServerLostError):
        await source(path=str(path)).discover()
    with rest_server() as server, pytest.raises(ServerLostError):
        await source(url=f"{server.url}/openapi.json").discover()
    with pytest.raises(ServerLostError):
        await source(path=str(tmp_path / "none")).discover()


async def test_operations_beyond_a_report_are_named_with_the_reason(tmp_path: Path) -> None:
    large = {"summary": "Large", "description": "x" * 4000, "parameters": []}
    fields = [{"name": f"p{n}", "in": "query", "description": "y" * 3000, "schema": {}} for n in range(18)]
    paths = {f"/{number}": {"get": {**large, "parameters": fields}} for number in range(70)}
    path = tmp_path / "api.json"
    path.write_text(json.dumps({"openapi": "3.1.0", "servers": [{"url": "https://a.example"}], "paths": paths}))
    found = (await source(path=str(path)).discover()).tools
    assert len(found) == 70
    assert sum(len(tool.definition) for tool in found) <= MAX_DISCOVERY_BYTES
    assert found[0].definition
    assert found[-1].problem
