"""The issuer's key ring: a folder that is polled while it is used, so that keys rotate without a restart.

A new key is published at once and signs PUBLISH_AHEAD seconds later, so that all caches of the published keys have it
before its first token arrives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from pathlib import Path

from libs.common.runtime.clock import Clock
from libs.common.telemetry.log import Log
from services.authz.adapters.keys.signing_keys import FileKey, KeySet, SigningKeysError, key_files, read_key_set
from services.authz.domain.errors import no_signing_key

POLL_SECONDS = 1.0
# The edge fetches the keys every 5 s, the gateway behind it caches them for 2 s, and this folder is polled every
# second.
PUBLISH_AHEAD = 10.0
Fingerprint = tuple[tuple[str, int, int, int], ...]


class KeyFolder:
    """A KeyRing over a folder. The newest file name signs; every key is published until its file is gone."""

    def __init__(
        self, folder: Path, clock: Clock, log: Log, *, revoked: Callable[[], AbstractSet[str]] = frozenset
    ) -> None:
        """Read the folder. Raises SigningKeysError for invalid keys. `revoked` returns the ids of keys that must not
        sign."""
        self._folder, self._clock, self._log, self._revoked = folder, clock, log, revoked
        self._polled_at = clock.monotonic()
        # Computed before the files are read, so that the next poll sees a change in between.
        self._fingerprint = _fingerprint(folder)
        self._set = read_key_set(folder)
        self._lock = asyncio.Lock()
        # Other replicas, or an earlier process, have published an existing key since its file was created.
        now = clock.now().timestamp()
        created = [changed / 1e9 for _, _, changed, _ in self._fingerprint]
        existing = zip(self._set.keys, created, strict=False)
        self._published_since = dict.fromkeys((key.kid for key in self._set.keys), now) | {
            key.kid: since for key, since in existing if since <= now - PUBLISH_AHEAD
        }

    async def active(self) -> FileKey:
        """Return the newest key that was published long enough ago. If all keys are new, return the one that was
        published first; of keys that were published together, the one with the oldest name."""
        keys = await self._current()
        revoked = self._revoked()
        usable = [key for key in keys.keys if key.kid not in revoked]
        if not usable:
            raise no_signing_key()
        published_by = self._clock.now().timestamp() - PUBLISH_AHEAD
        oldest = min(usable, key=lambda key: self._published_since[key.kid])
        return next((key for key in reversed(usable) if self._published_since[key.kid] <= published_by), oldest)

    async def published(self) -> AbstractSet[str]:
        return frozenset(key.kid for key in (await self._current()).keys)

    async def jwks(self) -> bytes:
        return (await self._current()).jwks

    def cached_jwks(self) -> bytes | None:
        return None if self._is_stale() else self._set.jwks

    async def _current(self) -> KeySet:
        if self._is_stale():
            async with self._lock:
                # Another call may have polled during the wait.
                if self._is_stale():
                    await self._poll()
        return self._set

    def _is_stale(self) -> bool:
        return self._clock.monotonic() - self._polled_at >= POLL_SECONDS

    async def _poll(self) -> None:
        """Load the keys if the folder changed. An invalid folder changes nothing and is logged once."""
        self._polled_at = self._clock.monotonic()
        try:
            fingerprint = await asyncio.to_thread(_fingerprint, self._folder)
            if fingerprint == self._fingerprint:
                return
            self._fingerprint = fingerprint
            self._set = await asyncio.to_thread(read_key_set, self._folder, self._set.keys)
            now = self._clock.now().timestamp()
            self._published_since = {key.kid: self._published_since.get(key.kid, now) for key in self._set.keys}
        except (SigningKeysError, OSError) as error:
            self._log.warning("signing keys not loaded", cause=str(error))
            return
        self._log.info("signing keys changed", newest=self._set.keys[-1].kid, published=len(self._set.keys))


def _fingerprint(folder: Path) -> Fingerprint:
    """Return a value that changes whenever a key file is added, removed, rewritten or made readable."""
    files = []
    for path in key_files(folder):
        try:
            stat = path.stat()
        except OSError:
            files.append((path.name, 0, 0, 0))
        else:
            files.append((path.name, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size))
    return tuple(files)
