"""The gVisor sandbox: a user-space kernel in a memory-safe language between the tool and the host kernel.

gVisor handles the system calls of the process and may itself use only a few host calls. It starts slower than
bubblewrap and needs more memory, so only tools that demand it run in it.

A cgroup limits memory and CPU time, gVisor's own included, where this process can create one; an rlimit inside limits
the number of processes. Without a cgroup, each process inside has a memory limit, and the memory and CPU time of the
whole container are polled from outside.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from services.executor.adapters.sandbox.bounds import Bounds, bounds_with
from services.executor.adapters.sandbox.gvisor.container import GvisorContainer, StartedContainer
from services.executor.adapters.sandbox.gvisor.environment import (
    OVERHEAD_BYTES,
    GvisorEnvironment,
    PreparedContainer,
    chown_writable,
    prepare_environment,
)
from services.executor.adapters.sandbox.gvisor.memory_watch import MemoryWatch
from services.executor.adapters.sandbox.launcher.cgroup_hierarchy import PREFERRED, CgroupPolicy
from services.executor.adapters.sandbox.pipes import attach_pipes, open_pipes
from services.executor.adapters.sandbox.port import EnvironmentUnavailableError, Plan, SandboxedProcess
from services.executor.domain import errors, run_errors


class GvisorSandbox:
    """Implements Sandbox with gVisor. Prepares its environment on first use."""

    def __init__(
        self,
        instance: str = "local",
        *,
        cgroups: CgroupPolicy = PREFERRED,
        runsc: Path | None = None,
        folders: Sequence[Path] = (),
    ) -> None:
        """`folders` are shown in addition to the root file system."""
        self._instance, self._cgroups, self._runsc, self._folders = instance, cgroups, runsc, folders
        self._preparing = threading.Lock()
        self._environment: GvisorEnvironment | None = None
        self._unavailable: str | None = None
        self._running: set[GvisorContainer] = set()
        self._memory_watch = MemoryWatch()

    @property
    def name(self) -> str:
        """Return the name that audit records show."""
        return "kernel/gvisor"

    def unavailable_reason(self) -> str:
        """Return why it cannot be used here; empty if it can. The first call probes for about 0.25 s; later calls are
        cached."""
        with self._preparing:
            if self._unavailable is None:
                try:
                    self._environment = prepare_environment(self._instance, self._cgroups, self._runsc, self._folders)
                    self._unavailable = ""
                except EnvironmentUnavailableError as error:
                    self._unavailable = str(error)
            return self._unavailable

    @property
    def platform(self) -> str:
        """Return how gVisor intercepts system calls, such as `systrap`; empty before it was probed and where it cannot
        be used."""
        return "" if self._environment is None else self._environment.runsc.platform

    def bounds(self) -> Bounds | None:
        """Return what keeps the limits of its processes; None before it was probed and where it cannot be used."""
        environment = self._environment
        return None if self._unavailable != "" or environment is None else bounds_with(environment.hierarchy.parents)

    async def start(self, plan: Plan) -> SandboxedProcess:
        """Start a process. Raises SANDBOX_UNAVAILABLE if the plan cannot be enforced in full."""
        environment = self._environment or await self._prepare_once()
        preparing = asyncio.ensure_future(asyncio.to_thread(_prepare_container, environment, plan))
        try:
            prepared = await asyncio.shield(preparing)
        except (OSError, ValueError) as error:
            raise run_errors.sandbox_failed("the sandbox could not be created") from error
        except asyncio.CancelledError:
            # A thread cannot be canceled: its result is discarded when it is done.
            preparing.add_done_callback(_discard_result)
            raise
        try:
            process = GvisorContainer(await _start(plan, prepared), self._memory_watch)
        except BaseException as error:
            prepared.discard()
            if isinstance(error, OSError):
                raise run_errors.sandbox_failed("the sandbox could not be started") from error
            raise
        self._running.add(process)
        process.add_done_callback(self._running.discard)
        return process

    async def close(self) -> None:
        """Kill running containers and release the environment."""
        self._unavailable = self._unavailable or "the sandbox is closed"
        await asyncio.gather(*(process.kill() for process in self._running))
        environment, self._environment = self._environment, None
        if environment is not None:
            await asyncio.to_thread(environment.close)

    async def _prepare_once(self) -> GvisorEnvironment:
        reason = await asyncio.to_thread(self.unavailable_reason)
        if self._environment is None:
            raise errors.sandbox_missing(self.name, reason)
        return self._environment


def _prepare_container(environment: GvisorEnvironment, plan: Plan) -> PreparedContainer:
    chown_writable(plan)
    return environment.prepare_container(plan)


def _discard_result(preparing: asyncio.Future[PreparedContainer]) -> None:
    if not preparing.cancelled() and preparing.exception() is None:
        preparing.get_loop().run_in_executor(None, preparing.result().discard)


async def _start(plan: Plan, prepared: PreparedContainer) -> StartedContainer:
    (stdin, to_stdin), (from_stdout, stdout), (from_stderr, stderr) = standard = open_pipes(3)
    passed, writing, reading = list[int](), [to_stdin], [from_stdout, from_stderr]
    if plan.has_events:
        (from_events, events), (inputs, to_inputs) = _open_event_pipes(prepared, standard)
        passed, writing, reading = [events, inputs], [*writing, to_inputs], [*reading, from_events]
    try:
        pipes = await attach_pipes(writing, reading)
        try:
            # On this thread, which lives as long as the executor: PDEATHSIG fires when the parent thread ends.
            process = subprocess.Popen(  # noqa: ASYNC220
                [*prepared.command, *map(str, passed)],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=passed,
                env={},
                cwd="/",
                start_new_session=True,
            )
        except BaseException:
            pipes.close_writers()
            pipes.close_readers()
            raise
    finally:
        for descriptor in (stdin, stdout, stderr, *passed):
            os.close(descriptor)
    return StartedContainer(
        plan=plan,
        memory_limit=plan.memory_bytes + OVERHEAD_BYTES,
        process=process,
        folder=prepared.folder,
        group=prepared.group,
        terminate=prepared.terminate,
        pipes=pipes,
    )


def _open_event_pipes(prepared: PreparedContainer, opened: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Open the pipes of events and input; on OSError the opened ones are closed too."""
    try:
        return prepared.open_event_pipes()
    except OSError:
        for descriptor in chain.from_iterable(opened):
            os.close(descriptor)
        raise
