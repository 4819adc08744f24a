"""The executor's end of the launcher, where the launcher does not listen."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from contextlib import suppress

import pytest

from services.executor.adapters.sandbox.bubblewrap.launcher_client import LauncherClient
from services.executor.adapters.sandbox.port import Plan


async def test_who_leaves_before_the_launcher_was_asked_is_forgotten() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    nothing = os.open(os.devnull, os.O_RDWR)
    ours.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            ours.send(b"x" * 1000)
    with subprocess.Popen(["true"]) as process:  # noqa: ASYNC220
        launching = LauncherClient(process, ours, lambda: None)
        starting = asyncio.create_task(launching.start(Plan(("/bin/cat",)), nothing, nothing))
        await asyncio.wait([starting], timeout=0.01)
        assert len(launching._ended) == 1
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert (launching._began, launching._ended) == ({}, {})
        theirs.close()
        await launching.close()
    os.close(nothing)
