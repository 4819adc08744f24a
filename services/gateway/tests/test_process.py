"""The gateway as a process of its own: its loop, its signals, its exit."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from services.gateway.tests.conftest import Client
from services.gateway.tests.peers import Peers
from tests.harness.stores import free_port


class Process:
    """A running gateway process."""

    def __init__(self, child: asyncio.subprocess.Process, port: int, peers: Peers) -> None:
        self.child, self.port, self.peers = child, port, peers

    async def line(self, event: str) -> dict[str, Any]:
        """Return the next line about an event."""
        assert self.child.stdout is not None
        async for line in self.child.stdout:
            found: dict[str, Any] = orjson.loads(line)
            if found["event"] == event:
                return found
        raise AssertionError(f"the process ended without {event}")


@pytest.fixture
async def process(
    process_environment: Callable[[str], dict[str, str]], signer: Any, repository: Path
) -> AsyncIterator[Process]:
    peers = Peers(process_environment, signer)
    await peers.start()
    port = free_port()
    environment = {**process_environment("gateway"), **peers.addresses(), "TOOLMESH_LISTEN": f"127.0.0.1:{port}"}
    environment["TOOLMESH_REDIS_URL"] = "redis://127.0.0.1:1"
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "services.gateway",
        cwd=repository,
        env={**environment, "TOOLMESH_DRAIN_SECONDS": "8"},
        stdout=asyncio.subprocess.PIPE,
    )
    process = Process(child, port, peers)
    await asyncio.wait_for(process.line("ready"), 30)
    yield process
    if child.returncode is None:
        child.kill()
    await child.wait()
    await peers.stop()


async def test_a_signal_ends_the_process_after_its_calls(process: Process, pki: Any, signer: Any) -> None:
    client = Client(pki, process.port, "edge", signer.mint())
    held = asyncio.create_task(client.invoke("held"))
    await asyncio.wait_for(process.peers.executor.reached(1), 10)
    process.child.send_signal(signal.SIGTERM)
    await asyncio.wait_for(process.line("stopping"), 10)
    assert (await client.http.get("/healthz")).status_code == 503
    process.peers.executor.release.set()
    assert (await held).json()["result"]["status"] == "succeeded"
    assert await asyncio.wait_for(process.child.wait(), 20) == 0
    await client.http.aclose()


async def test_a_stranger_is_cut_off_and_a_lost_client_cancels(process: Process, pki: Any, signer: Any) -> None:
    stranger = Client(pki, process.port, "orchestrator", signer.mint())
    with pytest.raises(httpx.TransportError):
        await stranger.call("rpc.discover")
    client = Client(pki, process.port, "edge", signer.mint())
    lost = asyncio.create_task(client.invoke("slow"))
    await asyncio.wait_for(process.peers.executor.reached(1), 10)
    lost.cancel()
    await asyncio.wait_for(process.peers.executor.canceled.wait(), 10)
    assert (await asyncio.wait_for(process.line("call"), 10))["code"] == "CANCELLED"
    for used in (stranger, client):
        await used.http.aclose()


async def test_a_process_without_its_settings_names_them_and_ends(repository: Path) -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.gateway", cwd=repository, env={}, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await child.communicate()
    assert child.returncode == 2
    assert b"TOOLMESH_EXECUTOR_ADDRESS" in errors
