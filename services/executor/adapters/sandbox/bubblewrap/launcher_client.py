"""The executor's end of the launcher: starts it, asks it for sandboxes, and hears how they end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from services.executor.adapters.sandbox.launcher.main import MESSAGE_BYTES, SHUTDOWN
from services.executor.adapters.sandbox.port import Plan

ROOT = Path(__file__).resolve().parents[5]
_MAIN = "import sys; sys.path.insert(0, sys.argv.pop()); from services.executor.adapters.sandbox.launcher.main import main; main()"
_PATIENCE = 10.0

ExitFacts = dict[str, Any]


def spawn_launcher(config: dict[str, Any]) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a launcher. It inherits one socket and nothing else: no environment, no open file, no secret."""
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


def request_start(control: socket.socket, number: int, plan: Plan, stdin: int, stdout: int) -> None:
    """Ask for a sandbox that reads and writes these ends of pipes. Raises BlockingIOError when the launcher has too much to read."""
    written = os.memfd_create("plan")
    try:
        with open(written, "wb", closefd=False) as file:
            file.write(json.dumps(asdict(plan)).encode())
        socket.send_fds(control, [json.dumps({"start": number}).encode()], [stdin, stdout, written])
    finally:
        os.close(written)


class LauncherClient:
    """A launcher that runs, as seen from the event loop."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket, lost: Callable[[], None]) -> None:
        self._process, self._control, self._lost = process, control, lost
        self._numbers = 0
        self._began: dict[int, asyncio.Future[None]] = {}
        self._ended: dict[int, asyncio.Future[ExitFacts]] = {}
        self._loop = asyncio.get_running_loop()
        self._sending = asyncio.Lock()
        control.setblocking(False)
        self._loop.add_reader(control.fileno(), self._listen)

    async def start(self, plan: Plan, stdin: int, stdout: int) -> tuple[int, asyncio.Future[ExitFacts]]:
        """Start a sandbox; return its number and the future of how it ends. Returns when it has begun or ended, whichever is first."""
        self._numbers += 1
        number = self._numbers
        began: asyncio.Future[None] = self._loop.create_future()
        ended: asyncio.Future[ExitFacts] = self._loop.create_future()
        self._began[number], self._ended[number] = began, ended
        asked = False
        try:
            async with self._sending:
                await self._send(lambda: request_start(self._control, number, plan, stdin, stdout))
            asked = True
            await began
        except BaseException:
            self._began.pop(number, None)
            if asked:
                self.kill(number)
            else:
                # The launcher never heard of it, so nobody will tell of its end.
                self._ended.pop(number, None)
            raise
        return number, ended

    def kill(self, number: int) -> None:
        """Ask for the end of a sandbox. What has ended is left alone."""
        if number in self._ended:
            task = self._loop.create_task(self._kill(number))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def close(self) -> None:
        """Let the launcher end, which ends every sandbox, and wait for it."""
        with contextlib.suppress(OSError):
            async with self._sending:
                await self._send(lambda: self._control.send(SHUTDOWN))
        try:
            await asyncio.to_thread(self._process.wait, _PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
        while self._control.fileno() >= 0:
            self._listen()

    async def _kill(self, number: int) -> None:
        async with self._sending:
            await self._send(lambda: self._control.send(json.dumps({"kill": number}).encode()))

    async def _send(self, send: Callable[[], object]) -> None:
        while True:
            try:
                send()
            except BlockingIOError:
                await self._writable()
            else:
                return

    async def _writable(self) -> None:
        writable: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_writer(self._control.fileno(), lambda: None if writable.done() else writable.set_result(None))
        try:
            await writable
        finally:
            self._loop.remove_writer(self._control.fileno())

    def _listen(self) -> None:
        try:
            while message := self._control.recv(MESSAGE_BYTES):
                self._take(json.loads(message))
        except BlockingIOError:
            return
        except ConnectionError:
            message = b""
        self._end()

    def _take(self, said: dict[str, Any]) -> None:
        number = said.get("began") or said["ended"]
        began = self._began.pop(number, None)
        if began is not None and not began.done():
            began.set_result(None)
        if "ended" in said:
            ended = self._ended.pop(number)
            if not ended.done():
                ended.set_result(said["facts"])

    def _end(self) -> None:
        """The launcher is gone, and every sandbox with it."""
        self._loop.remove_reader(self._control.fileno())
        self._control.close()
        for number in list(self._ended):
            self._take({"ended": number, "facts": {"lost": True}})
        self._lost()
