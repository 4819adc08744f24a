"""The launcher client with a launcher that does not read its socket."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from contextlib import suppress

import pytest

from services.executor.adapters.sandbox.bubblewrap.launcher_client import LauncherClient
from services.executor.adapters.sandbox.port import Plan


async def test_a_start_canceled_before_the_request_is_forgotten() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    nothing = os.open(os.devnull, os.O_RDWR)
    ours.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            ours.send(b"x" * 1000)
    with subprocess.Popen(["true"]) as process:  # noqa: ASYNC220
        client = LauncherClient(process, ours, lambda: None)
        starting = asyncio.create_task(client.start(Plan(("/bin/cat",)), [nothing, nothing]))
        await asyncio.wait([starting], timeout=0.01)
        assert len(client._running) == 1
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert (client._starting, client._running) == ({}, {})
        theirs.close()
        await client.close()
    os.close(nothing)
