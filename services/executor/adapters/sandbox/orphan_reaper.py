"""Reaps processes that sandboxes leave to this process when their own parent was killed.

A process is waited for by its parent, an orphan by none. As a subreaper the executor inherits the orphans of its
descendants, which an init would reap otherwise: so it may be the first process of its container.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

from libs.common.runtime.tasks import PeriodicTask
from libs.common.telemetry.log import Log
from services.executor.adapters.sandbox.launcher.process_identity import start_time
from services.executor.adapters.sandbox.launcher.process_tree import children
from services.executor.adapters.sandbox.launcher.syscalls import become_subreaper

INTERVAL_SECONDS = 15.0
"""Much longer than this process leaves a child that it waits for unreaped."""


class OrphanReaper:
    """Reaps each child that ended before the last step and was not waited for since."""

    def __init__(self, log: Log, *, interval: float = INTERVAL_SECONDS) -> None:
        self._ended: set[int] = set()
        self._task = PeriodicTask("orphan-reaper", self._step, log, interval=interval)

    async def start(self) -> None:
        """Inherit the orphans of all descendants from now on, and reap them."""
        become_subreaper()
        await self._task.start()

    async def stop(self) -> None:
        """Stop reaping."""
        await self._task.stop()

    def reap(self) -> list[int]:
        """Reap what had already ended at the last call, and return it. A PID is not used again before it is reaped."""
        ended = {pid for pid in children(os.getpid()) if not start_time(pid)}
        orphans = sorted(ended & self._ended)
        for pid in orphans:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        self._ended = ended.difference(orphans)
        return orphans

    async def _step(self) -> None:
        await asyncio.to_thread(self.reap)
