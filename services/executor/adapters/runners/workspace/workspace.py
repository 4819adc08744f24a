"""Workspaces: a run changes a copy of a volume, and its changes become real only after somebody has looked at them.

Every volume that a tool sees is a copy that it could write to, also where it may not: so a tool that should only read and wrote is
seen doing it, and the volume is none the worse. What the copy holds afterwards, against what it held before, is what the run did,
whatever the tool says about it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from libs.common.errors import MeshError
from services.executor.adapters.runners.workspace import file_tree as trees
from services.executor.adapters.runners.workspace.apply_changes import Change, keep_changes
from services.executor.adapters.sandbox.scratch.remove_tree import remove_tree
from services.executor.domain import errors
from services.executor.domain.tool import VOLUMES, Effect, Tool

_LOOK_SECONDS = 0.1
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Copy:
    volume: str
    original: Path
    folder: Path
    before: trees.Tree


class Workspace:
    """The volumes of one run."""

    def __init__(
        self,
        folder: Path | None = None,
        copies: Sequence[_Copy] = (),
        shown: Sequence[tuple[str, str]] = (),
        room: int = 0,
    ) -> None:
        self._folder = folder
        self._copies = copies
        self._room = room
        self._changes: list[tuple[_Copy, list[Change]]] = []
        self._keeping: asyncio.Future[None] | None = None
        self._outgrown: MeshError | None = None
        self.writable = tuple((str(copy.folder), f"{VOLUMES}/{copy.volume}") for copy in copies)
        self.readable = tuple(shown)
        """Volumes that are too large to be copied, for tools that only read them: those cannot be written to at all."""

    async def watched(self, kill: Callable[[], Awaitable[object]], step: Coroutine[Any, Any, T]) -> T:
        """Take a step of a process, and end the process if it fills the disk meanwhile. Raises RESOURCE_LIMIT_EXCEEDED then, and
        whatever the step raises otherwise."""
        if not self._copies:
            return await step
        watch = asyncio.create_task(self._watch(kill), name="workspace-watch")
        try:
            return await step
        except Exception:
            if self._outgrown is not None:
                raise self._outgrown from None
            raise
        finally:
            watch.cancel()

    async def _watch(self, kill: Callable[[], Awaitable[object]]) -> None:
        while self._outgrown is None:
            await asyncio.sleep(_LOOK_SECONDS)
            for copy in self._copies:
                if not await asyncio.to_thread(_fits, copy, self._room):
                    # Said before it is done: whoever waits for the process may hear of its end first.
                    self._outgrown = errors.volume_too_large(copy.volume, self._room)
                    await kill()
                    return

    async def effects(self) -> tuple[Effect, ...]:
        """Return what the run did to its volumes. Raises RESOURCE_LIMIT_EXCEEDED, and EXECUTION_FAILED when it left something
        that cannot be kept. For after the end of the process."""
        seen: list[Effect] = []
        for copy in self._copies:
            after = await self._examined(copy)
            changes = difference(copy.before, after)
            self._changes.append((copy, changes))
            seen += [Effect(f"file:{copy.volume}/{each.relative}", each.operation, observed=True) for each in changes]
        return tuple(seen)

    async def keep(self) -> None:
        """Make the changes real, file by file, each whole or not at all. Raises PARTIAL_FAILURE when a volume has changed meanwhile
        where the run changed it, or when not all could be made. Once begun it goes on, also if nobody waits for it."""
        self._keeping = asyncio.ensure_future(self._keep())
        await asyncio.shield(self._keeping)

    async def drop(self) -> None:
        """Throw the copies away. Fine if that was done before."""
        if self._folder is not None:
            await asyncio.shield(self.forget())

    def forget(self) -> asyncio.Future[None]:
        """Throw the copies away without waiting for it."""
        return asyncio.get_running_loop().run_in_executor(None, _remove, self._folder)

    async def _keep(self) -> None:
        done, of = 0, sum(len(changes) for _, changes in self._changes)
        try:
            for copy, changes in self._changes:
                kept = await asyncio.to_thread(keep_changes, copy.original, copy.folder, changes)
                done += kept.done
                if kept.cause:
                    raise errors.partly_kept(done, of, kept.cause)
        finally:
            await self.forget()

    async def _examined(self, copy: _Copy) -> trees.Tree:
        try:
            return await asyncio.to_thread(trees.read_tree, copy.folder, self._room)
        except trees.TooLargeError:
            raise errors.volume_too_large(copy.volume, self._room) from None
        except (trees.ForeignError, OSError):
            raise errors.not_carried_over(copy.volume) from None


class Volumes:
    """The volumes that this executor offers, by name."""

    def __init__(self, volumes: Mapping[str, Path], scratch: Callable[[], Path]) -> None:
        self._volumes = dict(volumes)
        self._scratch = scratch

    def offers(self, tool: Tool) -> bool:
        """Return whether every volume that a tool names is here."""
        return all(volume in self._volumes for volume in tool.confinement.reads)

    async def open(self, tool: Tool) -> Workspace:
        """Copy the volumes of a tool for one run. Raises RESOURCE_LIMIT_EXCEEDED when one that it may change does not fit into its
        scratch space."""
        if not tool.confinement.reads:
            return Workspace()
        folder, left = self._scratch() / secrets.token_hex(12), threading.Event()
        opened = asyncio.ensure_future(asyncio.to_thread(self._open, tool, folder, left))
        try:
            return await asyncio.shield(opened)
        except BaseException:
            # Whoever waited has left, or it did not fit: what was copied goes as soon as the copying is over.
            left.set()
            loop = asyncio.get_running_loop()
            opened.add_done_callback(lambda _: (opened.exception(), loop.run_in_executor(None, _remove, folder)))
            raise

    def _open(self, tool: Tool, folder: Path, left: threading.Event) -> Workspace:
        confined = tool.confinement
        folder.mkdir(mode=0o711)
        folder.chmod(0o711)
        copies, shown = [], []
        for volume in confined.reads:
            original, copied = self._volumes[volume], folder / volume
            try:
                before = trees.copy_tree(original, copied, confined.scratch_bytes, lambda: not left.is_set())
                copies.append(_Copy(volume, original, copied, before))
            except trees.TooLargeError:
                if volume in confined.writes:
                    raise errors.volume_too_large(volume, confined.scratch_bytes) from None
                remove_tree(copied)
                shown.append((str(original), f"{VOLUMES}/{volume}"))
            except OSError as cause:
                raise errors.sandbox_failed(f"the volume {volume} cannot be read") from cause
        return Workspace(folder, copies, shown, confined.scratch_bytes)


def difference(before: trees.Tree, after: trees.Tree) -> list[Change]:
    """Return what turns one tree into the other: folders before what is in them, and removed the other way round. Pure."""
    made = [
        Change(path, "update" if path in before else "create", before.get(path, ""), found)
        for path, found in sorted(after.items())
        if before.get(path) != found
    ]
    gone = [Change(path, "delete", before[path], "") for path in sorted(before, reverse=True) if path not in after]
    return [*gone, *made]


def _fits(copy: _Copy, room: int) -> bool:
    """Say whether a copy is no larger than it may be, while somebody may be writing into it."""
    try:
        size, entries = trees.taken(copy.folder)
    except trees.TooLargeError:
        return False
    # A file takes whole blocks of the disk. That was so before the run, and is not the tool's doing.
    rounding = len(copy.before) * os.statvfs(copy.folder).f_frsize
    return size <= room + rounding and entries <= trees.MAX_ENTRIES


def _remove(folder: Path | None) -> None:
    if folder is not None:
        remove_tree(folder)
