"""The resources that all runners of one executor share: sandboxes, packs, volumes, egress proxy, threads."""

from __future__ import annotations

import asyncio
import py_compile
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from libs.common.runtime.tasks import PeriodicTask
from libs.common.telemetry.log import Log
from services.executor.adapters.runners.packs.catalog import PackCatalog
from services.executor.adapters.runners.packs.pack_metrics import export_packs
from services.executor.adapters.runners.packs.packs import Pack
from services.executor.adapters.runners.tiers import Tiers
from services.executor.adapters.runners.workspace.workspace import Volumes
from services.executor.adapters.sandbox.egress.listener import EgressListener
from services.executor.adapters.sandbox.egress.proxy import EgressProxy
from services.executor.adapters.sandbox.port import Sandbox
from services.executor.adapters.sandbox.scratch.bounded_scratch import BoundedScratch
from services.executor.adapters.sandbox.scratch.locked_tempdir import LockedTempDir
from services.executor.domain.scheduling.heavy_work import HeavyWork
from services.executor.domain.tool import Tool
from services.executor.domain.volumes import Volume

# A look at the packs takes at most this share of the time.
_POLL_SHARE = 0.05
_WORKER_SOURCE = Path(__file__).resolve().parents[2] / "worker" / "toolmesh_tool"


class RunnerEnvironment:
    """Creates its resources on first use, so an executor with only built-in tools pays for none of them."""

    def __init__(
        self,
        sandboxes: Mapping[str, Sandbox],
        log: Log,
        *,
        packs: Sequence[Path] = (),
        pack_poll_seconds: float = 0.0,
        volumes: Mapping[str, Volume] | None = None,
        egress: Callable[[], EgressProxy] = EgressProxy,
        heavy_work: HeavyWork | None = None,
    ) -> None:
        self.heavy_work = heavy_work or HeavyWork()
        self.tiers = Tiers(sandboxes)
        self.revision = 0
        """Counts the changes of packs and sandboxes."""
        self._scratch = BoundedScratch(self._volume_scratch)
        self.volumes = Volumes(volumes or {}, self._scratch)
        self._log = log
        self._pack_folders = tuple(packs)
        self._catalog: PackCatalog | None = None
        self._poller = PeriodicTask("tool-packs", self._poll, log, interval=pack_poll_seconds or 1.0)
        self._polls, self._poll_after = pack_poll_seconds > 0, 0.0
        self._listeners: list[Callable[[], None]] = []
        self._new_egress = egress
        self._egress: EgressProxy | None = None
        self._folder: LockedTempDir | None = None

    @property
    def packs(self) -> Mapping[str, Pack]:
        """The packs that are loaded at present, by name."""
        return {} if self._catalog is None else self._catalog.packs

    def listen(self, listener: Callable[[], None]) -> None:
        """Call the listener whenever packs were added, changed or removed, or a sandbox can be used or no longer."""
        self._listeners.append(listener)

    async def start(self) -> None:
        """Copy the packs and probe the sandboxes. Does nothing if no packs are configured."""
        if self._pack_folders:
            await asyncio.to_thread(self._prepare)
            if self._polls:
                await self._poller.start()

    async def stop(self) -> None:
        """End the running processes and remove the created files."""
        await self._poller.stop()
        await self.tiers.close()
        if self._egress is not None:
            await self._egress.close()
        await asyncio.to_thread(self._scratch.close)
        if self._folder is not None:
            await asyncio.to_thread(self._folder.remove)

    def worker_code(self) -> str:
        """Return the folder with the worker's code, readable in every sandbox. `start` creates it with the packs."""
        return str(self._own_path() / "worker")

    async def open_egress(self, tool: Tool) -> EgressListener | None:
        """Open a connection gate to the hosts in the tool's manifest; None if it names none."""
        confined = tool.confinement
        return await self.open_egress_to(confined.hosts, confined.ports) if confined.hosts else None

    async def open_egress_to(self, hosts: Sequence[str], ports: Sequence[int]) -> EgressListener:
        """Open a connection gate to these hosts and ports."""
        if self._egress is None:
            self._egress = self._new_egress()
        return await self._egress.open(hosts, ports)

    def _prepare(self) -> None:
        _copy_worker_code(self._own_path() / "worker" / _WORKER_SOURCE.name)
        self._catalog = PackCatalog(self._pack_folders, self._own_path() / "packs", self._log)
        self._catalog.refresh()
        export_packs(self._catalog.packs.values())
        self._log.info("tool packs", packs=[pack.label for pack in self.packs.values()])
        self.tiers.probe()

    async def _poll(self) -> None:
        """Look for changed packs, and tell the listeners."""
        began = time.monotonic()
        if self._catalog is None or began < self._poll_after:
            return
        changed = await asyncio.to_thread(self._catalog.refresh)
        ended = time.monotonic()
        self._poll_after = ended + (ended - began) * (1 / _POLL_SHARE - 1) if not changed else 0.0
        if changed:
            export_packs(self._catalog.packs.values())
            self.refresh()

    def refresh(self) -> None:
        """Resolve the entry points of tools again, and tell the listeners: packs or sandboxes changed."""
        self.revision += 1
        for listener in self._listeners:
            listener()

    def _own_path(self) -> Path:
        if self._folder is None:
            # Searchable but not listable: sandboxed processes run as another user and must reach their bound paths.
            self._folder = LockedTempDir("runners", mode=0o711)
        return self._folder.path

    def _volume_scratch(self) -> Path:
        scratch = self._own_path() / "volumes"
        # No other user of the machine passes: mounts of it are made before a sandbox switches to its own user.
        scratch.mkdir(mode=0o700, exist_ok=True)
        return scratch


def _copy_worker_code(code: Path) -> None:
    """Copy and compile the worker's code once, so that no cold start compiles it."""
    shutil.copytree(_WORKER_SOURCE, code, ignore=shutil.ignore_patterns("__pycache__"))
    cache = code / "__pycache__"
    for source in list(code.glob("*.py")):
        source.chmod(0o644)
        # The path where a worker looks for bytecode, independent of this process's own bytecode settings.
        compiled = cache / f"{source.stem}.{sys.implementation.cache_tag}.pyc"
        unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(source), str(compiled), optimize=0, invalidation_mode=unchecked)
        compiled.chmod(0o644)
    for folder in (code.parent, code, cache):
        folder.chmod(0o755)
