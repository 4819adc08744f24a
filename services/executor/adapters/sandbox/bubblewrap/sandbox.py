"""Processes confined by bubblewrap: namespaces of their own, no privileges, a filter of system calls, and limits.

As root every sandbox runs as a host user of its own, who owns nothing; folders that it may write to are handed over to that user.
As anyone else it runs as a stranger in a user namespace of its own. Either way it has no capability and can get none.

A whole tree is limited in memory, processes and processor time by control groups, where this process may make them. Where it may not,
the kernel's limits for each process and for the number of processes take their place, and what the tree uses in all is added up twice
a second: it ends a little later then, and how fast it may go is not limited.
"""

from __future__ import annotations

import asyncio
import os
import threading

from services.executor.adapters.sandbox.bubblewrap.environment import (
    BubblewrapEnvironment,
    prepare_environment,
)
from services.executor.adapters.sandbox.bubblewrap.launcher_client import ExitFacts, LauncherClient, spawn_launcher
from services.executor.adapters.sandbox.bubblewrap.probe import probe
from services.executor.adapters.sandbox.exit_report import diagnose
from services.executor.adapters.sandbox.pipes import attach_pipes, open_pipes
from services.executor.adapters.sandbox.port import (
    EnvironmentUnavailableError,
    ExitKind,
    ExitReport,
    Plan,
    SandboxedProcess,
)
from services.executor.domain import errors


class BubblewrapSandbox:
    """A Sandbox made of bubblewrap. Nothing is prepared, and no process is started, before it is first used."""

    def __init__(self, instance: str = "local", *, cgroups: str = "preferred") -> None:
        self._instance, self._cgroups = instance, cgroups
        self._preparing = threading.RLock()
        self._ground: BubblewrapEnvironment | None = None
        self._why_not: str | None = None
        self._launching: LauncherClient | None = None
        self._closed = False

    @property
    def name(self) -> str:
        """What evidence shows."""
        return "process/bubblewrap"

    def unavailable_reason(self) -> str:
        """Say why it cannot be used here; empty if it can. Tries once, which takes about a tenth of a second, and remembers."""
        with self._preparing:
            if self._why_not is None:
                try:
                    self._why_not = probe(self._prepared().config)
                except EnvironmentUnavailableError as missing:
                    self._why_not = str(missing)
            return self._why_not

    async def start(self, plan: Plan) -> SandboxedProcess:
        """Start a process. Raises SANDBOX_UNAVAILABLE when it could not be confined as planned; nothing ever runs with less."""
        try:
            if self._ground is None:
                await asyncio.to_thread(self._prepared)
            process = await self._start(plan)
        except EnvironmentUnavailableError as missing:
            raise errors.sandbox_failed(str(missing)) from missing
        except OSError as failure:
            raise errors.sandbox_failed("the sandbox could not be made") from failure
        if process.over and (report := await process.wait()).kind is ExitKind.NOT_STARTED:
            await process.kill()
            raise errors.sandbox_failed("the sandbox could not be made") from RuntimeError(report.stderr_tail)
        return process

    async def close(self) -> None:
        """End everything that still runs, and give back what was prepared."""
        self._closed = True
        if self._launching is not None:
            await self._launching.close()
        if self._ground is not None:
            self._ground.close()
            self._ground = None

    async def _start(self, plan: Plan) -> BubblewrapProcess:
        launching = self._launcher()
        (stdin, to_stdin), (from_stdout, stdout) = open_pipes(2)
        try:
            writer, [(reader, transport)] = await attach_pipes(to_stdin, from_stdout)
            try:
                number, facts = await launching.start(plan, stdin, stdout)
            except BaseException:
                writer.close()
                transport.close()
                raise
        finally:
            os.close(stdin)
            os.close(stdout)
        return BubblewrapProcess(plan, launching, number, facts, writer, reader, transport)

    def _launcher(self) -> LauncherClient:
        if self._closed or self._ground is None:
            raise errors.sandbox_failed("the sandbox is closed")
        if self._launching is None:
            process, control = spawn_launcher(self._ground.config)
            self._launching = LauncherClient(process, control, self._forget_launcher)
        return self._launching

    def _forget_launcher(self) -> None:
        """The launcher is gone, and what ran with it; the next start gets another."""
        self._launching = None

    def _prepared(self) -> BubblewrapEnvironment:
        with self._preparing:
            if self._ground is None:
                self._ground = prepare_environment(self._instance, self._cgroups)
            return self._ground


class BubblewrapProcess:
    """A process in a sandbox of bubblewrap."""

    def __init__(
        self,
        plan: Plan,
        launching: LauncherClient,
        number: int,
        facts: asyncio.Future[ExitFacts],
        stdin: asyncio.StreamWriter,
        stdout: asyncio.StreamReader,
        transport: asyncio.ReadTransport,
    ) -> None:
        self._plan, self._launching, self._number, self._facts = plan, launching, number, facts
        self._stdin, self._stdout, self._transport = stdin, stdout, transport

    @property
    def over(self) -> bool:
        """True once it has ended."""
        return self._facts.done()

    @property
    def stdin(self) -> asyncio.StreamWriter:
        """Leads to its standard input."""
        return self._stdin

    @property
    def stdout(self) -> asyncio.StreamReader:
        """Brings its standard output."""
        return self._stdout

    async def wait(self) -> ExitReport:
        """Wait for its end. Nothing that it started is left then; what it wrote can still be read."""
        facts = await asyncio.shield(self._facts)
        self._stdin.close()
        return diagnose(self._plan, facts)

    async def kill(self) -> ExitReport:
        """End it and everything it started; what it wrote is gone with it."""
        self._launching.kill(self._number)
        report = await self.wait()
        self._transport.close()
        return report
