"""What the runners of one executor stand on: its sandboxes, packs, volumes and ways out."""

from __future__ import annotations

import asyncio
import py_compile
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from libs.common.telemetry.log import Log
from services.executor.adapters.runners.packs.packs import Pack, load_packs
from services.executor.adapters.runners.tiers import Tiers
from services.executor.adapters.runners.workspace.workspace import Volumes
from services.executor.adapters.sandbox.egress.listener import EgressListener
from services.executor.adapters.sandbox.egress.proxy import EgressProxy
from services.executor.adapters.sandbox.port import Sandbox
from services.executor.adapters.sandbox.scratch.locked_tempdir import LockedTempDir
from services.executor.domain.tool import Tool

_SOURCE = Path(__file__).resolve().parents[2] / "worker" / "toolmesh_tool"


class Ground:
    """Shared by all runners. Nothing is made before it is needed: an executor whose tools all ship with it pays for none of this."""

    def __init__(
        self,
        sandboxes: Mapping[str, Sandbox],
        log: Log,
        *,
        packs: Sequence[Path] = (),
        volumes: Mapping[str, Path] | None = None,
        egress: Callable[[], EgressProxy] = EgressProxy,
    ) -> None:
        self.tiers = Tiers(sandboxes)
        self.packs: Mapping[str, Pack] = {}
        self.volumes = Volumes(volumes or {}, self._scratch)
        self._log = log
        self._pack_folders = tuple(packs)
        self._new_egress = egress
        self._egress: EgressProxy | None = None
        self._folder: LockedTempDir | None = None

    async def start(self) -> None:
        """Copy the packs, and find out which sandboxes work here. Without packs there is nothing to do before the first call."""
        if self._pack_folders:
            await asyncio.to_thread(self._prepare)

    async def stop(self) -> None:
        """End what runs, and remove what was made."""
        await self.tiers.close()
        if self._egress is not None:
            await self._egress.close()
        if self._folder is not None:
            await asyncio.to_thread(self._folder.remove)

    def worker_code(self) -> str:
        """Return the folder that holds what a worker runs, readable in every sandbox. Made with the packs, which alone need it."""
        return str(self._own() / "worker")

    async def way_out(self, tool: Tool) -> EgressListener | None:
        """Open the way to the hosts that a tool's manifest names; None if it names none."""
        confined = tool.confinement
        if not confined.hosts:
            return None
        if self._egress is None:
            self._egress = self._new_egress()
        return await self._egress.open(confined.hosts, confined.ports)

    def _prepare(self) -> None:
        _lay_out(self._own() / "worker" / _SOURCE.name)
        self.packs = load_packs(self._pack_folders, self._own() / "packs", self._log)
        self._log.info("tool packs", packs=[pack.label for pack in self.packs.values()])
        self.tiers.examine()

    def _own(self) -> Path:
        if self._folder is None:
            # Passable, not listable: who runs in a sandbox as somebody else must get to what is shown to it.
            self._folder = LockedTempDir("runners", mode=0o711)
        return self._folder.path

    def _scratch(self) -> Path:
        scratch = self._own() / "volumes"
        scratch.mkdir(mode=0o711, exist_ok=True)
        return scratch


def _lay_out(code: Path) -> None:
    """Copy the code of the workers, compiled: every cold start would otherwise compile it again."""
    shutil.copytree(_SOURCE, code, ignore=shutil.ignore_patterns("__pycache__"))
    cache = code / "__pycache__"
    for source in list(code.glob("*.py")):
        source.chmod(0o644)
        # Where and how a worker looks for it, however this process keeps its own.
        compiled = cache / f"{source.stem}.{sys.implementation.cache_tag}.pyc"
        unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(source), str(compiled), optimize=0, invalidation_mode=unchecked)
        compiled.chmod(0o644)
    for folder in (code.parent, code, cache):
        folder.chmod(0o755)
