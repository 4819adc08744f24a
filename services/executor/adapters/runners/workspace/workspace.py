"""Workspaces: a run changes copies of its volumes, and the changes are committed only after verification.

Every volume that a tool sees is a writable copy, also where the tool may only read. So a forbidden write is observed
and the volume stays unchanged. The difference between the copy before and after the run is the run's effect,
independent of what the tool reports.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from libs.common.errors import MeshError
from services.executor.adapters.runners.workspace import file_tree
from services.executor.adapters.runners.workspace.apply_changes import Change, VolumeBusyError
from services.executor.adapters.runners.workspace.file_tree import Tree, TreeTooLargeError
from services.executor.adapters.runners.workspace.journal import (
    FORBIDDEN,
    VolumeChanges,
    commit_changes,
    forget_commit,
    recover_interrupted,
    resolve_commit,
)
from services.executor.adapters.runners.workspace.tenant_folder import open_tenant_folder
from services.executor.adapters.sandbox.scratch.bounded_scratch import BoundedScratch, ScratchFolder
from services.executor.adapters.sandbox.scratch.remove_tree import remove_tree
from services.executor.domain import run_errors
from services.executor.domain.idempotency import errors as key_errors
from services.executor.domain.run import CommitState
from services.executor.domain.tool import FOLDER, VOLUMES, Confinement, Effect, Tool
from services.executor.domain.volumes import Volume

_POLL_SECONDS = 0.1
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_EXCESS_BYTES = 1 << 20
# How long a resolver waits for a process that commits to the volume at this moment.
_RESOLVE_SECONDS = 5.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _VolumeCopy:
    volume: str
    original: Path
    folder: Path
    """The path by which this process reaches it; a sandbox mounts it by another."""
    before: Tree


class Workspace:
    """The volumes of one run."""

    def __init__(
        self,
        scratch: ScratchFolder | None = None,
        copies: Sequence[_VolumeCopy] = (),
        shown: Sequence[tuple[str, str]] = (),
        max_bytes: int = 0,
    ) -> None:
        self._scratch = scratch
        self._copies = copies
        self._max_bytes = max_bytes
        self._changes: list[tuple[_VolumeCopy, list[Change]]] = []
        self._applied: list[Effect] = []
        self._committing: asyncio.Future[None] | None = None
        self._size_error: MeshError | None = None
        self.mount_namespace = 0 if scratch is None else scratch.namespace
        self.writable = tuple(
            (str(scratch.source / copy.volume), f"{VOLUMES}/{copy.volume}") for copy in copies if scratch is not None
        )
        self.readable = tuple(shown)
        """Read-only binds of volumes that are too large to copy, for tools that only read them."""

    async def run_watched(self, kill: Callable[[], Awaitable[object]], step: Coroutine[Any, Any, T]) -> T:
        """Await a step of a process and kill the process if its volumes outgrow their limit.

        Raises RESOURCE_LIMIT_EXCEEDED in that case, and otherwise the exceptions of the step.
        """
        if not self._copies:
            return await step
        watch = asyncio.create_task(self._watch_size(kill), name="workspace-watch")
        try:
            result = await step
        except Exception:
            await self._check_size()
            raise
        finally:
            watch.cancel()
        # An answer may report a failed write.
        await self._check_size()
        return result

    async def _check_size(self) -> None:
        """Raise RESOURCE_LIMIT_EXCEEDED if the process was killed for its size, or its volumes are full."""
        if self._size_error is None and await asyncio.to_thread(self._exceeds_limit):
            self._size_error = self._too_large()
        if self._size_error is not None:
            raise self._size_error from None

    async def _watch_size(self, kill: Callable[[], Awaitable[object]]) -> None:
        while self._size_error is None:
            await asyncio.sleep(_POLL_SECONDS)
            if await asyncio.to_thread(self._exceeds_limit):
                # Set before the kill: the step may fail on the process's end before the kill returns.
                self._size_error = self._too_large()
                await kill()
                return

    def _exceeds_limit(self) -> bool:
        """Return whether the copies, deleted open files included, exceed their limit."""
        try:
            return self._scratch is not None and self._scratch.used_bytes() > self._disk_limit()
        except OSError:
            return False

    def _disk_limit(self) -> int:
        # Files occupy whole pages. The rounding of the original files is not the tool's doing.
        rounding = sum(len(copy.before) + 1 for copy in self._copies) * _PAGE_BYTES
        return len(self._copies) * self._max_bytes + rounding

    def _too_large(self) -> MeshError:
        return run_errors.volume_too_large(", ".join(copy.volume for copy in self._copies), self._max_bytes)

    def limit_size(self) -> None:
        """Let the file system refuse what exceeds the limit by more than a little. Blocking."""
        if self._scratch is not None:
            # The excess shows afterwards that the limit, and not the tool, made a write fail.
            self._scratch.resize(self._disk_limit() + _EXCESS_BYTES)

    async def observe_effects(self) -> tuple[Effect, ...]:
        """Return the run's changes of its volumes. Call it after the end of the process.

        Raises RESOURCE_LIMIT_EXCEEDED, and EXECUTION_FAILED if the run left something other than files and folders.
        """
        effects: list[Effect] = []
        for copy in self._copies:
            after = await self._read(copy)
            changes = difference(copy.before, after)
            self._changes.append((copy, changes))
            effects += _effects_of(copy, changes)
        return tuple(effects)

    @property
    def journal_volume(self) -> str:
        """The volume that notes whether the changes were applied; empty without changes."""
        changed = [copy for copy, changes in self._changes if changes]
        return min(changed, key=lambda copy: copy.original).volume if changed else ""

    def committed(self) -> tuple[Effect, ...] | None:
        """Return the changes that the commit applied; None while it is under way."""
        return tuple(self._applied) if self._committing is not None and self._committing.done() else None

    async def commit(self, invocation_id: str) -> None:
        """Apply the changes to the volumes, all or none. Continues if the caller is canceled.

        Raises PARTIAL_FAILURE if a volume changed meanwhile where the run changed it, or if not all could be applied;
        SERVICE_UNAVAILABLE if another call was told that this one has no effect.
        """
        self._committing = asyncio.ensure_future(self._commit(invocation_id))
        await asyncio.shield(self._committing)

    async def forget(self, invocation_id: str) -> None:
        """Remove the note that the changes were applied."""
        changed = [copy.original for copy, changes in self._changes if changes]
        if changed:
            await asyncio.to_thread(forget_commit, min(changed), invocation_id)

    async def rollback(self) -> None:
        """Remove the copies. Does nothing the second time."""
        if self._scratch is not None:
            await asyncio.shield(self.start_rollback())

    def start_rollback(self) -> asyncio.Future[None]:
        """Start to remove the copies without waiting for it."""
        return asyncio.get_running_loop().run_in_executor(None, self.remove)

    def remove(self) -> None:
        """Remove the copies. Blocking."""
        if self._scratch is not None:
            self._scratch.remove()

    async def _commit(self, invocation_id: str) -> None:
        parts = [VolumeChanges(copy.original, copy.folder, changes) for copy, changes in self._changes]
        try:
            outcome = await asyncio.to_thread(commit_changes, invocation_id, parts)
            effects = [effect for copy, changes in self._changes for effect in _effects_of(copy, changes)]
            self._applied = effects[: outcome.applied]
        finally:
            await self.start_rollback()
        if outcome.cause == FORBIDDEN:
            raise key_errors.claim_lost()
        if outcome.cause:
            raise run_errors.partly_kept(outcome.applied, sum(len(part.changes) for part in parts), outcome.cause)

    async def _read(self, copy: _VolumeCopy) -> Tree:
        try:
            return await asyncio.to_thread(file_tree.read_tree, copy.folder, self._max_bytes)
        except TreeTooLargeError:
            raise run_errors.volume_too_large(copy.volume, self._max_bytes) from None
        except (file_tree.UnsupportedFileError, OSError):
            raise run_errors.not_carried_over(copy.volume) from None


class Volumes:
    """The volumes of this executor by name."""

    def __init__(self, volumes: Mapping[str, Volume], scratch: BoundedScratch) -> None:
        self._volumes = dict(volumes)
        self._scratch = scratch

    def missing_for(self, tool: Tool) -> list[str]:
        """Return the volumes of the tool's manifest that do not exist here."""
        return [volume for volume in tool.confinement.reads if volume not in self._volumes]

    async def resolve_commit(self, volume: str, tenant: str, invocation_id: str) -> CommitState:
        """Return whether a run applied its changes. If it did not, it never will.

        Raises SERVICE_UNAVAILABLE while the volume cannot be locked or read.
        """
        if volume not in self._volumes:
            return CommitState.UNKNOWN
        try:
            return await asyncio.to_thread(self._resolve_commit, volume, tenant, invocation_id)
        except (VolumeBusyError, OSError) as cause:
            raise key_errors.volume_busy(volume) from cause

    def _resolve_commit(self, volume: str, tenant: str, invocation_id: str) -> CommitState:
        folder = open_tenant_folder(self._volumes[volume], tenant)
        return resolve_commit(folder, invocation_id, within=_RESOLVE_SECONDS)

    async def open(self, tool: Tool, tenant: str) -> Workspace:
        """Copy what a tenant has in the tool's volumes for one run.

        Raises RESOURCE_LIMIT_EXCEEDED if a writable one exceeds its scratch space.
        """
        if not tool.confinement.reads:
            return Workspace()
        canceled = threading.Event()
        opening = asyncio.ensure_future(asyncio.to_thread(self._open, tool, tenant, canceled))
        try:
            return await asyncio.shield(opening)
        except BaseException:
            # The caller was canceled: remove the copies once the thread has stopped.
            canceled.set()
            opening.add_done_callback(_remove_result)
            raise

    def _open(self, tool: Tool, tenant: str, canceled: threading.Event) -> Workspace:
        confined = tool.confinement
        volumes, limit = len(confined.reads), _copy_limit(confined)
        try:
            # Copying is bounded by itself; each file takes up to a page more than its content.
            max_bytes = volumes * (limit + file_tree.MAX_ENTRIES * _PAGE_BYTES)
            scratch = self._scratch.create(max_bytes, volumes * (file_tree.MAX_ENTRIES + 1) + 1)
        except OSError as cause:
            raise run_errors.sandbox_failed("no bounded file system can be mounted for the volumes") from cause
        try:
            workspace = self._copy(tool, tenant, scratch, canceled)
            workspace.limit_size()
        except BaseException as cause:
            scratch.remove()
            if isinstance(cause, OSError):
                raise run_errors.sandbox_failed("the file system of the volumes cannot be limited") from cause
            raise
        return workspace

    def _copy(self, tool: Tool, tenant: str, scratch: ScratchFolder, canceled: threading.Event) -> Workspace:
        confined, limit = tool.confinement, _copy_limit(tool.confinement)
        copies, shown = [], []
        for volume in confined.reads:
            target = scratch.path / volume
            try:
                original = open_tenant_folder(self._volumes[volume], tenant)
                recover_interrupted(original)
                before = file_tree.copy_tree(original, target, limit, lambda: not canceled.is_set())
                copies.append(_VolumeCopy(volume, original, target, before))
            except TreeTooLargeError:
                if volume in confined.writes:
                    raise run_errors.volume_too_large(volume, limit) from None
                remove_tree(target)
                shown.append((str(original), f"{VOLUMES}/{volume}"))
            except OSError as cause:
                raise run_errors.sandbox_failed(f"the volume {volume} cannot be read") from cause
        return Workspace(scratch, copies, shown, limit)


def _effects_of(copy: _VolumeCopy, changes: Sequence[Change]) -> list[Effect]:
    return [
        Effect(
            f"file:{copy.volume}/{change.relative}",
            change.operation,
            observed=True,
            before=_named_digest(change.before),
            after=_named_digest(change.after),
        )
        for change in changes
    ]


def _named_digest(digest: str) -> str:
    return digest if digest in ("", FOLDER) else f"sha256:{digest}"


def difference(before: Tree, after: Tree) -> list[Change]:
    """Return the changes from one tree to the other: deletions first and bottom up, then the rest top down. Pure."""
    written = [
        Change(path, "update" if path in before else "create", before.get(path, ""), digest)
        for path, digest in sorted(after.items())
        if before.get(path) != digest
    ]
    deleted = [Change(path, "delete", before[path], "") for path in sorted(before, reverse=True) if path not in after]
    return [*deleted, *written]


def _copy_limit(confined: Confinement) -> int:
    """Return the most bytes of one copy. Copies are in memory, so the memory limit bounds them too."""
    return min(confined.scratch_bytes, confined.memory_bytes)


def _remove_result(opening: asyncio.Future[Workspace]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().start_rollback()
