"""The service as a process: acknowledged tickets survive a kill."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from toolmesh.approval.v1 import approval_service_pb2 as pb

from services.approval.tests.drafts import request
from tests.harness.stores import free_port

Start = Callable[[], Awaitable[asyncio.subprocess.Process]]


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
async def start(environment: dict[str, str], repository: Path, port: int) -> AsyncIterator[Start]:
    """Return a function that starts the process and returns when it is ready."""
    children: list[asyncio.subprocess.Process] = []

    async def run() -> asyncio.subprocess.Process:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "services.approval",
            cwd=repository,
            env={**environment, "TOOLMESH_LISTEN": f"127.0.0.1:{port}"},
            stdout=asyncio.subprocess.PIPE,
        )
        children.append(child)
        assert child.stdout is not None
        async with asyncio.timeout(30):
            async for line in child.stdout:
                if b'"event":"ready"' in line:
                    return child
        raise AssertionError("the process ended before it was ready")

    yield run
    for child in children:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def test_an_acknowledged_ticket_survives_a_kill(start: Start, stub_to: Any, port: int) -> None:
    first = await start()
    stub, channel = stub_to("executor", port)
    ticket = (await stub.CreateTicket(request())).ticket
    first.kill()
    await first.wait()
    second = await start()
    assert (await stub.GetTicket(pb.GetTicketRequest(name=ticket.name), timeout=20)).ticket == ticket
    await channel.close()
    second.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(second.wait(), 20) == 0


async def test_the_log_never_shows_the_databases_password(
    environment: dict[str, str], repository: Path, port: int
) -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "services.approval",
        cwd=repository,
        env={**environment, "TOOLMESH_LISTEN": f"127.0.0.1:{port}"},
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdout is not None
    first_line = await asyncio.wait_for(child.stdout.readline(), 30)
    child.kill()
    await child.wait()
    assert b"TOOLMESH_DATABASE_URL" in first_line
    assert environment["TOOLMESH_DATABASE_URL"].encode() not in first_line
