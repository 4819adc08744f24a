"""The bubblewrap sandbox: namespaces, no capabilities, a seccomp filter and resource limits.

If the executor runs as root, every sandbox gets its own host user, which also becomes the owner of writable mounts.
Otherwise it runs as an unprivileged user in its own user namespace.

Cgroups limit memory, processes and CPU time of the whole tree where this process can create them. Otherwise rlimits
apply per process, usage of the tree is added up twice a second, and the CPU rate is not limited.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from pathlib import Path

from services.executor.adapters.sandbox.bounds import Bounds, bounds_with
from services.executor.adapters.sandbox.bubblewrap.environment import (
    BubblewrapEnvironment,
    prepare_environment,
)
from services.executor.adapters.sandbox.bubblewrap.launcher_client import ExitFacts, LauncherClient, spawn_launcher
from services.executor.adapters.sandbox.bubblewrap.probe import probe
from services.executor.adapters.sandbox.exit_report import diagnose
from services.executor.adapters.sandbox.launcher.cgroup_hierarchy import PREFERRED, CgroupPolicy
from services.executor.adapters.sandbox.pipes import ProcessPipes, attach_pipes, open_pipes
from services.executor.adapters.sandbox.port import (
    EnvironmentUnavailableError,
    EventPipes,
    ExitKind,
    ExitReport,
    Plan,
    SandboxedProcess,
)
from services.executor.domain import run_errors


class BubblewrapSandbox:
    """Implements Sandbox with bubblewrap. Prepares its environment and launcher on first use."""

    def __init__(
        self, instance: str = "local", *, cgroups: CgroupPolicy = PREFERRED, folders: Sequence[Path] = ()
    ) -> None:
        """`folders` are shown in addition to the root file system."""
        self._instance, self._cgroups, self._folders = instance, cgroups, folders
        self._preparing = threading.RLock()
        self._environment: BubblewrapEnvironment | None = None
        self._unavailable: str | None = None
        self._launcher_client: LauncherClient | None = None
        self._closed = False

    @property
    def name(self) -> str:
        """Return the name that audit records show."""
        return "process/bubblewrap"

    def unavailable_reason(self) -> str:
        """Return why it cannot be used here; empty if it can. The first call probes for about 0.1 s; later calls are
        cached."""
        with self._preparing:
            if self._unavailable is None:
                try:
                    self._unavailable = probe(self._prepare_once().config)
                except EnvironmentUnavailableError as error:
                    self._unavailable = str(error)
            return self._unavailable

    def bounds(self) -> Bounds | None:
        """Return what keeps the limits of its processes; None before it was probed and where it cannot be used."""
        environment = self._environment
        return None if self._unavailable != "" or environment is None else bounds_with(environment.hierarchy.parents)

    async def start(self, plan: Plan) -> SandboxedProcess:
        """Start a process. Raises SANDBOX_UNAVAILABLE if the plan cannot be enforced in full."""
        try:
            if self._environment is None:
                await asyncio.to_thread(self._prepare_once)
            process = await self._start(plan)
        except EnvironmentUnavailableError as error:
            raise run_errors.sandbox_failed(str(error)) from error
        except OSError as failure:
            raise run_errors.sandbox_failed("the sandbox could not be created") from failure
        if process.finished and (report := await process.wait()).kind is ExitKind.NOT_STARTED:
            await process.kill()
            raise run_errors.sandbox_failed("the sandbox could not be created") from RuntimeError(report.stderr_tail)
        return process

    async def close(self) -> None:
        """Kill running processes and release the environment."""
        self._closed = True
        if self._launcher_client is not None:
            await self._launcher_client.close()
        if self._environment is not None:
            self._environment.close()
            self._environment = None

    async def _start(self, plan: Plan) -> BubblewrapProcess:
        launcher = self._connect_launcher()
        (stdin, to_stdin), (from_stdout, stdout), *further = open_pipes(4 if plan.has_events else 2)
        ends, writing, reading = [stdin, stdout], [to_stdin], [from_stdout]
        if further:
            (from_events, events), (inputs, to_inputs) = further
            ends, writing, reading = [*ends, events, inputs], [*writing, to_inputs], [*reading, from_events]
        try:
            pipes = await attach_pipes(writing, reading)
            try:
                number, facts = await launcher.start(plan, ends)
            except BaseException:
                pipes.close_writers()
                pipes.close_readers()
                raise
        finally:
            for descriptor in ends:
                os.close(descriptor)
        return BubblewrapProcess(plan, launcher, number, facts, pipes)

    def _connect_launcher(self) -> LauncherClient:
        if self._closed or self._environment is None:
            raise run_errors.sandbox_failed("the sandbox is closed")
        if self._launcher_client is None:
            process, control = spawn_launcher(self._environment.config)
            self._launcher_client = LauncherClient(process, control, self._forget_launcher)
        return self._launcher_client

    def _forget_launcher(self) -> None:
        """Forget a launcher that ended; the next start spawns another."""
        self._launcher_client = None

    def _prepare_once(self) -> BubblewrapEnvironment:
        with self._preparing:
            if self._environment is None:
                self._environment = prepare_environment(self._instance, self._cgroups, self._folders)
            return self._environment


class BubblewrapProcess:
    """A SandboxedProcess of bubblewrap."""

    def __init__(
        self,
        plan: Plan,
        launcher: LauncherClient,
        number: int,
        facts: asyncio.Future[ExitFacts],
        pipes: ProcessPipes,
    ) -> None:
        self._plan, self._launcher_client, self._number, self._facts = plan, launcher, number, facts
        self._pipes = pipes

    @property
    def finished(self) -> bool:
        """Return whether it has ended."""
        return self._facts.done()

    @property
    def stdin(self) -> asyncio.StreamWriter:
        """Return the writer of its standard input."""
        return self._pipes.writers[0]

    @property
    def stdout(self) -> asyncio.StreamReader:
        """Return the reader of its standard output."""
        return self._pipes.readers[0]

    @property
    def event_pipes(self) -> EventPipes | None:
        """Return the pipes of its events and its input."""
        return self._pipes.event_pipes

    async def wait(self) -> ExitReport:
        """Wait until its whole process tree has ended; buffered output can still be read."""
        facts = await asyncio.shield(self._facts)
        self._pipes.close_writers()
        return diagnose(self._plan, facts)

    async def terminate(self) -> None:
        """Send SIGTERM to the first process inside."""
        self._launcher_client.terminate(self._number)

    async def kill(self) -> ExitReport:
        """Kill its process tree and discard unread output."""
        self._launcher_client.kill(self._number)
        report = await self.wait()
        self._pipes.close_readers()
        return report
