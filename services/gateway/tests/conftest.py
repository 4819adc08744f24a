"""A gateway as it runs, with its peers, over real mutual TLS."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
import pytest_asyncio

from libs.common.runtime.settings import load
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.gateway.config import Settings
from services.gateway.tests.peers import Peers
from services.gateway.transport.app import GatewayApplication
from services.gateway.wiring import build


class Client:
    """An HTTP client with the certificate of one mesh name."""

    def __init__(self, pki: Any, port: int, name: str, token: str) -> None:
        identity = pki.of(name)
        context = ssl.create_default_context(cafile=str(pki.ca))
        context.load_cert_chain(identity.cert, identity.key)
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self.http = httpx.AsyncClient(
            base_url=f"https://127.0.0.1:{port}", verify=context, headers=headers, timeout=20, trust_env=False
        )

    async def post(self, payload: bytes, **headers: str) -> httpx.Response:
        """Send a body as it is."""
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        return await self.http.post("/rpc", content=payload, headers={"content-type": "application/json", **named})

    async def call(self, method: str, params: Any = None, call_id: Any = 1, **headers: str) -> httpx.Response:
        """Call one method."""
        body = {"jsonrpc": "2.0", "id": call_id, "method": method}
        if params is not None:
            body["params"] = params
        return await self.post(orjson.dumps(body), **headers)

    async def invoke(self, tool: str, arguments: Any = None, **headers: str) -> httpx.Response:
        """Call a tool."""
        return await self.call("tools.invoke", {"tool": tool, "arguments": arguments or {}}, **headers)


class Mesh:
    """A running gateway, its peers and its callers."""

    def __init__(
        self, pki: Any, signer: Any, peers: Peers, application: GatewayApplication, log: Log, lines: Path
    ) -> None:
        self.pki, self.signer, self.peers, self.application = pki, signer, peers, application
        self.port = application.server.port
        self.clients: list[Client] = []
        self._log, self._lines, self._before = log, lines, 0

    def client(self, name: str = "edge", token: str | None = None) -> Client:
        """Return a client; without a token of its own it carries a good one."""
        made = Client(self.pki, self.port, name, self.signer.mint() if token is None else token)
        self.clients.append(made)
        return made

    def lines(self) -> list[dict[str, Any]]:
        """Return what the gateway logged in this test so far."""
        self.application.telemetry.flush()
        self._log.flush()
        return [orjson.loads(line) for line in self._lines.read_bytes()[self._before :].splitlines()]

    async def idle(self) -> None:
        """Return when the gateway has nothing under way."""
        await self.application.in_flight.wait_idle(10)

    async def forget(self) -> None:
        """Begin anew, for the next test."""
        for client in self.clients:
            await client.http.aclose()
        await self.idle()
        self.clients.clear()
        self.peers.forget()
        self.application.telemetry.flush()
        self._log.flush()
        self._before = self._lines.stat().st_size


def _environment(pki: Any, name: str) -> dict[str, str]:
    identity = pki.of(name)
    return {
        "TOOLMESH_LISTEN": "127.0.0.1:0",
        "TOOLMESH_OPS_LISTEN": "127.0.0.1:0",
        "TOOLMESH_TLS_CERT": str(identity.cert),
        "TOOLMESH_TLS_KEY": str(identity.key),
        "TOOLMESH_TLS_CA": str(pki.ca),
        "TOOLMESH_MAX_CONCURRENT_CALLS": "9",
    }


@asynccontextmanager
async def run_mesh(pki: Any, signer: Any, folder: Path, **chosen: str) -> AsyncIterator[Mesh]:
    """Run a gateway in this process, with settings of the test's own."""
    peers = Peers(lambda name: _environment(pki, name), signer)
    await peers.start()
    environment = {
        **_environment(pki, "gateway"),
        **peers.addresses(),
        # Only MCP asks for it, and its tests name a real one.
        "TOOLMESH_REDIS_URL": "redis://127.0.0.1:1",
        "TOOLMESH_DRAIN_SECONDS": "4",
        **chosen,
    }
    settings = load(Settings, environment)
    lines = folder / "log"
    with lines.open("wb") as file:
        log = Log("gateway", descriptor=file.fileno())
        application = await build(settings, log, Tracing())
        await application.start()
        mesh = Mesh(pki, signer, peers, application, log, lines)
        yield mesh
        await mesh.forget()
        await application.stop()
        log.flush()
    await peers.stop()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def shared_mesh(pki: Any, signer: Any, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mesh]:
    """A gateway that serves every test of a module."""
    async with run_mesh(pki, signer, tmp_path_factory.mktemp("gateway")) as mesh:
        yield mesh


@pytest_asyncio.fixture(loop_scope="module")
async def mesh(shared_mesh: Mesh) -> AsyncIterator[Mesh]:
    """The module's gateway, without a memory of the tests before."""
    yield shared_mesh
    await shared_mesh.forget()
