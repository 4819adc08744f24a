"""The executor's client of the launcher: spawns it, requests sandboxes and receives their exit facts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from services.executor.adapters.sandbox.launcher.main import MESSAGE_BYTES, SHUTDOWN
from services.executor.adapters.sandbox.port import Plan

ROOT = Path(__file__).resolve().parents[5]
_MAIN = (
    "import sys; sys.path.insert(0, sys.argv.pop()); "
    "from services.executor.adapters.sandbox.launcher.main import main; main()"
)
_EXIT_SECONDS = 10.0

ExitFacts = dict[str, Any]


def spawn_launcher(config: dict[str, Any]) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a launcher. It inherits one socket only: no environment and no other open file."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-I", "-S", "-c", _MAIN, str(theirs.fileno()), str(ROOT)]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env={},
            cwd="/",
            start_new_session=True,
        )
    ours.send(json.dumps(config).encode())
    return process, ours


def request_start(control: socket.socket, number: int, plan: Plan, ends: Sequence[int]) -> None:
    """Request a sandbox with these pipe ends: stdin, stdout, and those of events and input where the plan has them.

    Raises BlockingIOError if the socket buffer is full.
    """
    plan_file = os.memfd_create("plan")
    try:
        with open(plan_file, "wb", closefd=False) as file:
            file.write(json.dumps(asdict(plan)).encode())
        socket.send_fds(control, [json.dumps({"start": number}).encode()], [plan_file, *ends])
    finally:
        os.close(plan_file)


class LauncherClient:
    """A connection to a running launcher, for the event loop."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket, on_lost: Callable[[], None]) -> None:
        self._process, self._control, self._on_lost = process, control, on_lost
        self._last_number = 0
        self._starting: dict[int, asyncio.Future[None]] = {}
        self._running: dict[int, asyncio.Future[ExitFacts]] = {}
        self._loop = asyncio.get_running_loop()
        self._sending = asyncio.Lock()
        control.setblocking(False)
        self._loop.add_reader(control.fileno(), self._receive)

    async def start(self, plan: Plan, ends: Sequence[int]) -> tuple[int, asyncio.Future[ExitFacts]]:
        """Start a sandbox; return its number and the future of its exit facts. Returns when it has started or ended."""
        self._last_number += 1
        number = self._last_number
        began: asyncio.Future[None] = self._loop.create_future()
        ended: asyncio.Future[ExitFacts] = self._loop.create_future()
        self._starting[number], self._running[number] = began, ended
        requested = False
        try:
            async with self._sending:
                await self._send(lambda: request_start(self._control, number, plan, ends))
            requested = True
            await began
        except BaseException:
            self._starting.pop(number, None)
            if requested:
                self.kill(number)
            else:
                # The launcher never got the request and will not report an end.
                self._running.pop(number, None)
            raise
        return number, ended

    def kill(self, number: int) -> None:
        """Request the kill of a sandbox; does nothing if it has ended."""
        self._request(number, "kill")

    def terminate(self, number: int) -> None:
        """Request the termination of a sandbox; does nothing if it has ended."""
        self._request(number, "terminate")

    async def close(self) -> None:
        """Shut down the launcher, which kills every sandbox, and wait for it."""
        with contextlib.suppress(OSError):
            async with self._sending:
                await self._send(lambda: self._control.send(SHUTDOWN))
        try:
            await asyncio.to_thread(self._process.wait, _EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
        while self._control.fileno() >= 0:
            self._receive()

    def _request(self, number: int, verb: str) -> None:
        if number in self._running:
            task = self._loop.create_task(self._send_request({verb: number}))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _send_request(self, message: dict[str, int]) -> None:
        async with self._sending:
            await self._send(lambda: self._control.send(json.dumps(message).encode()))

    async def _send(self, send: Callable[[], object]) -> None:
        while True:
            try:
                send()
            except BlockingIOError:
                await self._wait_writable()
            else:
                return

    async def _wait_writable(self) -> None:
        writable: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_writer(self._control.fileno(), lambda: None if writable.done() else writable.set_result(None))
        try:
            await writable
        finally:
            self._loop.remove_writer(self._control.fileno())

    def _receive(self) -> None:
        try:
            while message := self._control.recv(MESSAGE_BYTES):
                self._handle_message(json.loads(message))
        except BlockingIOError:
            return
        except ConnectionError:
            message = b""
        self._handle_disconnect()

    def _handle_message(self, message: dict[str, Any]) -> None:
        number = message.get("began") or message["ended"]
        began = self._starting.pop(number, None)
        if began is not None and not began.done():
            began.set_result(None)
        if "ended" in message:
            ended = self._running.pop(number)
            if not ended.done():
                ended.set_result(message["facts"])

    def _handle_disconnect(self) -> None:
        """Report every sandbox as lost: none survives its launcher."""
        self._loop.remove_reader(self._control.fileno())
        self._control.close()
        for number in list(self._running):
            self._handle_message({"ended": number, "facts": {"lost": True}})
        self._on_lost()
