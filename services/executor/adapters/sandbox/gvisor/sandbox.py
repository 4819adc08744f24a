"""Processes confined by gVisor: a kernel of their own, written in a safe language, between them and this machine's.

A system call of the process never reaches the host; gVisor answers it, and may itself ask next to nothing of the host. It is slower to
start and to call than namespaces are, and takes some memory, which is why only tools that demand it run in it.

Memory and processor time of the whole, gVisor's own included, are limited by a control group where this process may make one, and the
number of processes from inside. Without a control group, each process inside has a limit of memory of its own, and processor time is
looked at from outside.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from pathlib import Path

from services.executor.adapters.sandbox.gvisor.container import Contained, Started
from services.executor.adapters.sandbox.gvisor.environment import (
    OVERHEAD_BYTES,
    Entrance,
    Stage,
    StageMissingError,
    hand_over,
    set_stage,
)
from services.executor.adapters.sandbox.pipes import attached, open_pipes
from services.executor.adapters.sandbox.port import Confined, Plan
from services.executor.domain import errors


class Gvisor:
    """A Sandbox made of gVisor. Nothing is prepared, and no process is started, before it is first used."""

    def __init__(self, instance: str = "local", *, cgroups: str = "preferred", runsc: Path | None = None) -> None:
        self._instance, self._cgroups, self._named = instance, cgroups, runsc
        self._setting = threading.Lock()
        self._stage: Stage | None = None
        self._why_not: str | None = None
        self._running: set[Contained] = set()

    @property
    def name(self) -> str:
        """What evidence shows."""
        return "kernel/gvisor"

    def unavailable(self) -> str:
        """Say why it cannot be used here; empty if it can. Tries once, which takes about a quarter of a second, and remembers."""
        with self._setting:
            if self._why_not is None:
                try:
                    self._stage = set_stage(self._instance, self._cgroups, self._named)
                    self._why_not = ""
                except StageMissingError as missing:
                    self._why_not = str(missing)
            return self._why_not

    async def start(self, plan: Plan) -> Confined:
        """Start a process. Raises SANDBOX_UNAVAILABLE when it could not be confined as planned; nothing ever runs with less."""
        stage = self._stage or await self._set()
        preparing = asyncio.ensure_future(asyncio.to_thread(_prepared, stage, plan))
        try:
            entrance = await asyncio.shield(preparing)
        except (OSError, ValueError) as error:
            raise errors.sandbox_failed("the sandbox could not be made") from error
        except asyncio.CancelledError:
            # A thread cannot be stopped: what it makes is given back when it is done.
            preparing.add_done_callback(_give_back)
            raise
        try:
            process = Contained(await _start(plan, entrance))
        except BaseException as error:
            entrance.clear()
            if isinstance(error, OSError):
                raise errors.sandbox_failed("the sandbox could not be started") from error
            raise
        self._running.add(process)
        process.when_ended(self._running.discard)
        return process

    async def close(self) -> None:
        """End everything that still runs, and give back what was prepared."""
        self._why_not = self._why_not or "the sandbox is closed"
        await asyncio.gather(*(process.kill() for process in self._running))
        stage, self._stage = self._stage, None
        if stage is not None:
            await asyncio.to_thread(stage.close)

    async def _set(self) -> Stage:
        why_not = await asyncio.to_thread(self.unavailable)
        if self._stage is None:
            raise errors.sandbox_missing(self.name, why_not)
        return self._stage


def _prepared(stage: Stage, plan: Plan) -> Entrance:
    hand_over(plan)
    return stage.entrance(plan)


def _give_back(preparing: asyncio.Future[Entrance]) -> None:
    if not preparing.cancelled() and preparing.exception() is None:
        preparing.get_loop().run_in_executor(None, preparing.result().clear)


async def _start(plan: Plan, entrance: Entrance) -> Started:
    (stdin, to_stdin), (from_stdout, stdout), (from_stderr, stderr) = open_pipes(3)
    try:
        writer, [read, heard] = await attached(to_stdin, from_stdout, from_stderr)
        try:
            # On this thread, which lives as long as the executor does: the process ends with the thread that started it.
            process = subprocess.Popen(  # noqa: ASYNC220
                entrance.command, stdin=stdin, stdout=stdout, stderr=stderr, env={}, cwd="/", start_new_session=True
            )
        except BaseException:
            writer.close()
            read[1].close()
            heard[1].close()
            raise
    finally:
        for descriptor in (stdin, stdout, stderr):
            os.close(descriptor)
    return Started(
        plan, plan.memory_bytes + OVERHEAD_BYTES, process, entrance.folder, entrance.group, writer, read, heard
    )
