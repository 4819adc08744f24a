"""The issuer's key ring: a folder that is looked at again while it is used, so that keys rotate without a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

from libs.common.clock import Clock
from libs.common.telemetry.log import Log
from services.authz.adapters.signing_keys import KeySet, RsaKey, SigningKeysError, key_files, read_key_set

POLL_SECONDS = 1.0
Fingerprint = tuple[tuple[str, int, int, int], ...]


class KeyFolder:
    """A KeyRing over a folder. The newest file name signs; every key is published until its file is gone."""

    def __init__(self, folder: Path, clock: Clock, log: Log) -> None:
        """Read the folder. Raises SigningKeysError: an issuer does not start with keys it cannot use."""
        self._folder, self._clock, self._log = folder, clock, log
        self._looked_at = clock.monotonic()
        # Taken before the files are read: a change in between is then seen at the next look.
        self._fingerprint = _fingerprint(folder)
        self._set = read_key_set(folder)
        self._lock = asyncio.Lock()

    async def active(self) -> RsaKey:
        return (await self._current()).active

    async def jwks(self) -> bytes:
        return (await self._current()).jwks

    async def _current(self) -> KeySet:
        if self._clock.monotonic() - self._looked_at >= POLL_SECONDS:
            async with self._lock:
                # Whoever waited here finds the work done.
                if self._clock.monotonic() - self._looked_at >= POLL_SECONDS:
                    await self._look()
        return self._set

    async def _look(self) -> None:
        """Take over what the folder holds now; a folder that cannot be used changes nothing and is logged once."""
        self._looked_at = self._clock.monotonic()
        try:
            found = await asyncio.to_thread(_fingerprint, self._folder)
            if found == self._fingerprint:
                return
            self._fingerprint = found
            self._set = await asyncio.to_thread(read_key_set, self._folder, self._set.keys)
        except (SigningKeysError, OSError) as error:
            self._log.warning("signing keys not taken over", cause=str(error))
            return
        self._log.info("signing keys changed", active=self._set.active.kid, published=len(self._set.keys))


def _fingerprint(folder: Path) -> Fingerprint:
    """Return what changes whenever a key file is added, removed, rewritten or made readable."""
    seen = []
    for path in key_files(folder):
        try:
            stat = path.stat()
        except OSError:
            seen.append((path.name, 0, 0, 0))
        else:
            seen.append((path.name, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size))
    return tuple(seen)
