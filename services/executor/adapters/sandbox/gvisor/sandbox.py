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

from services.executor.adapters.sandbox.gvisor.container import GvisorContainer, StartedContainer
from services.executor.adapters.sandbox.gvisor.environment import (
    OVERHEAD_BYTES,
    GvisorEnvironment,
    PreparedContainer,
    chown_writable,
    prepare_environment,
)
from services.executor.adapters.sandbox.pipes import attach_pipes, open_pipes
from services.executor.adapters.sandbox.port import EnvironmentUnavailableError, Plan, SandboxedProcess
from services.executor.domain import errors


class GvisorSandbox:
    """A Sandbox made of gVisor. Nothing is prepared, and no process is started, before it is first used."""

    def __init__(self, instance: str = "local", *, cgroups: str = "preferred", runsc: Path | None = None) -> None:
        self._instance, self._cgroups, self._named = instance, cgroups, runsc
        self._preparing = threading.Lock()
        self._environment: GvisorEnvironment | None = None
        self._why_not: str | None = None
        self._running: set[GvisorContainer] = set()

    @property
    def name(self) -> str:
        """What evidence shows."""
        return "kernel/gvisor"

    def unavailable_reason(self) -> str:
        """Say why it cannot be used here; empty if it can. Tries once, which takes about a quarter of a second, and remembers."""
        with self._preparing:
            if self._why_not is None:
                try:
                    self._environment = prepare_environment(self._instance, self._cgroups, self._named)
                    self._why_not = ""
                except EnvironmentUnavailableError as missing:
                    self._why_not = str(missing)
            return self._why_not

    async def start(self, plan: Plan) -> SandboxedProcess:
        """Start a process. Raises SANDBOX_UNAVAILABLE when it could not be confined as planned; nothing ever runs with less."""
        environment = self._environment or await self._prepare_once()
        preparing = asyncio.ensure_future(asyncio.to_thread(_prepare_container, environment, plan))
        try:
            prepared = await asyncio.shield(preparing)
        except (OSError, ValueError) as error:
            raise errors.sandbox_failed("the sandbox could not be made") from error
        except asyncio.CancelledError:
            # A thread cannot be stopped: what it makes is given back when it is done.
            preparing.add_done_callback(_give_back)
            raise
        try:
            process = GvisorContainer(await _start(plan, prepared))
        except BaseException as error:
            prepared.discard()
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
        environment, self._environment = self._environment, None
        if environment is not None:
            await asyncio.to_thread(environment.close)

    async def _prepare_once(self) -> GvisorEnvironment:
        why_not = await asyncio.to_thread(self.unavailable_reason)
        if self._environment is None:
            raise errors.sandbox_missing(self.name, why_not)
        return self._environment


def _prepare_container(environment: GvisorEnvironment, plan: Plan) -> PreparedContainer:
    chown_writable(plan)
    return environment.prepared(plan)


def _give_back(preparing: asyncio.Future[PreparedContainer]) -> None:
    if not preparing.cancelled() and preparing.exception() is None:
        preparing.get_loop().run_in_executor(None, preparing.result().discard)


async def _start(plan: Plan, prepared: PreparedContainer) -> StartedContainer:
    (stdin, to_stdin), (from_stdout, stdout), (from_stderr, stderr) = open_pipes(3)
    try:
        writer, [read, heard] = await attach_pipes(to_stdin, from_stdout, from_stderr)
        try:
            # On this thread, which lives as long as the executor does: the process ends with the thread that started it.
            process = subprocess.Popen(  # noqa: ASYNC220
                prepared.command, stdin=stdin, stdout=stdout, stderr=stderr, env={}, cwd="/", start_new_session=True
            )
        except BaseException:
            writer.close()
            read[1].close()
            heard[1].close()
            raise
    finally:
        for descriptor in (stdin, stdout, stderr):
            os.close(descriptor)
    return StartedContainer(
        plan, plan.memory_bytes + OVERHEAD_BYTES, process, prepared.folder, prepared.group, writer, read, heard
    )
