"""Keeps the packs of an executor as the configured folders have them: added, changed and removed while it runs.

A change counts once the files of a pack rest, so that half of a deployment is not loaded. What cannot be loaded, such
as an invalid description or a second pack of the same name, is logged once and leaves loaded what was.
"""

from __future__ import annotations

import shutil
import time
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from libs.common.telemetry.log import Log
from services.executor.adapters.runners.packs.libraries import Libraries
from services.executor.adapters.runners.packs.package_lock import WheelError
from services.executor.adapters.runners.packs.packs import DESCRIPTION, Pack, PackError, copy_pack
from services.executor.adapters.runners.packs.signature import Signature, signature_of

SETTLE_SECONDS = 0.1


@dataclass(slots=True)
class _Source:
    """A folder of a pack: its files when it was read last, and the pack that was made of them."""

    signature: Signature | None
    pack: Pack | None = None


class PackCatalog:
    """The packs by name. A copy stays on disk until nothing refers to its pack: neither a call nor a worker."""

    def __init__(
        self, folders: Sequence[Path], copies: Path, log: Log, *, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.packs: Mapping[str, Pack] = {}
        self._folders, self._copies, self._log, self._sleep = tuple(folders), copies, log, sleep
        self._sources: dict[Path, _Source] = {}
        self._started = False
        self._numbers = count()
        self._libraries = Libraries(copies.with_name("libraries"))
        self._unused: deque[Path] = deque()
        """Copies without a pack. They are removed in the thread that looks for changes."""
        self._reported: dict[object, str] = {}

    def refresh(self) -> bool:
        """Look for changes and load them; return whether any pack changed. Blocking: run it in a thread."""
        self._remove_unused()
        changed = {path: signature for path, signature in self._scan().items() if self._differs(path, signature)}
        if not changed:
            return False
        if self._started:
            self._sleep(SETTLE_SECONDS)
        self._started = True
        for path, signature in changed.items():
            if _signature(path) == signature:
                self._read(path, signature)
        return self._publish()

    def _scan(self) -> dict[Path, Signature | None]:
        """Return the signature of each source; None for one that is gone."""
        found: dict[Path, Signature | None] = {}
        for folder in self._folders:
            try:
                paths = sorted(path for path in folder.iterdir() if (path / DESCRIPTION).is_file())
            except OSError as error:
                # A folder that is not there for a while takes no pack away.
                self._report(folder, f"cannot be read: {error.strerror}", "folder of tool packs is unavailable")
                paths = [path for path in self._sources if path.parent == folder]
                found |= {path: self._sources[path].signature for path in paths}
                continue
            self._reported.pop(folder, None)
            found |= {path: _signature(path) for path in paths}
        return found | {path: None for path in self._sources if path not in found}

    def _differs(self, path: Path, signature: Signature | None) -> bool:
        source = self._sources.get(path)
        return source is None or source.signature != signature

    def _read(self, path: Path, signature: Signature | None) -> None:
        if signature is None:
            self._sources.pop(path, None)
            self._reported.pop(path, None)
            return
        known = self._sources.get(path)
        loaded = None if known is None else known.pack
        copy = self._copies / str(next(self._numbers))
        try:
            pack = copy_pack(path, copy)
            if pack.wheels:
                pack = replace(pack, library=self._libraries.require(pack.folder, pack.wheels))
        except (PackError, WheelError, OSError) as error:
            self._unused.append(copy)
            if _signature(path) == signature:
                self._report(path, str(error), "tool pack is invalid")
                self._sources[path] = _Source(signature, loaded)
            return
        if _signature(path) != signature:
            # It was written to meanwhile. It is read again next time.
            self._unused.append(copy)
            return
        if loaded is not None and loaded.label == pack.label:
            self._unused.append(copy)
            self._sources[path] = _Source(signature, loaded)
            return
        weakref.finalize(pack, self._unused.append, copy).atexit = False
        self._reported.pop(path, None)
        self._sources[path] = _Source(signature, pack)

    def _publish(self) -> bool:
        """Replace the packs by those of the sources. A name of two sources stays with the pack that has it."""
        by_name: defaultdict[str, list[Pack]] = defaultdict(list)
        for source in self._sources.values():
            if source.pack is not None:
                by_name[source.pack.name].append(source.pack)
        packs: dict[str, Pack] = {}
        for name, candidates in by_name.items():
            if len(candidates) == 1:
                packs[name] = candidates[0]
                self._reported.pop(name, None)
                continue
            self._report(name, "", "two tool packs have the same name; no new one is used")
            if name in self.packs:
                packs[name] = self.packs[name]
        before, self.packs = self.packs, packs
        if before == packs:
            return False
        for name in before.keys() - packs.keys():
            self._log.info("tool pack removed", pack=before[name].label)
        for name, pack in packs.items():
            if before.get(name) != pack:
                self._log.info("tool pack loaded", pack=pack.label)
        return True

    def _report(self, key: object, why: str, message: str) -> None:
        """Log a problem of a pack or folder once, until it is another or solved."""
        if self._reported.get(key) != f"{message} {why}":
            self._reported[key] = f"{message} {why}"
            self._log.error(message, pack=key.name if isinstance(key, Path) else str(key), why=why)

    def _remove_unused(self) -> None:
        while self._unused:
            shutil.rmtree(self._unused.popleft(), ignore_errors=True)
        self._libraries.remove_unused()


def _signature(path: Path) -> Signature | None:
    return signature_of(path) if (path / DESCRIPTION).is_file() else None
