"""The issuer's key ring: a folder that is looked at again while it is used, so that keys rotate without a restart.

A new key is published at once and signs only a while later: everyone who remembers the published keys must have met it
before the first token that it signs, or that token would be refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from pathlib import Path

from libs.common.runtime.clock import Clock
from libs.common.telemetry.log import Log
from services.authz.adapters.keys.signing_keys import FileKey, KeySet, SigningKeysError, key_files, read_key_set
from services.authz.domain.errors import no_key_to_sign_with

POLL_SECONDS = 1.0
# The edge asks for the keys every five seconds, the gateway behind it remembers them for two, and this folder is looked
# at every second.
PUBLISH_AHEAD = 10.0
Fingerprint = tuple[tuple[str, int, int, int], ...]


class KeyFolder:
    """A KeyRing over a folder. The newest file name signs; every key is published until its file is gone."""

    def __init__(
        self, folder: Path, clock: Clock, log: Log, *, revoked: Callable[[], AbstractSet[str]] = frozenset
    ) -> None:
        """Read the folder. Raises SigningKeysError: an issuer does not start with keys it cannot use. `revoked` names the
        keys that must not sign any more."""
        self._folder, self._clock, self._log, self._revoked = folder, clock, log, revoked
        self._looked_at = clock.monotonic()
        # Taken before the files are read: a change in between is then seen at the next look.
        self._fingerprint = _fingerprint(folder)
        self._set = read_key_set(folder)
        self._lock = asyncio.Lock()
        # A key that lay here when the process began was published by others, or by its predecessor, since its file came.
        now = clock.now().timestamp()
        came = [changed / 1e9 for _, _, changed, _ in self._fingerprint]
        known = zip(self._set.keys, came, strict=False)
        self._since = dict.fromkeys((key.kid for key in self._set.keys), now) | {
            key.kid: since for key, since in known if since <= now - PUBLISH_AHEAD
        }

    async def active(self) -> FileKey:
        """Return the newest key that everyone has met; where all are new, the one that was published first, for an issuer must be able to
        sign. Of those that came here together, as all do to a new replica, that is the one with the oldest name."""
        keys = await self._current()
        revoked = self._revoked()
        usable = [key for key in keys.keys if key.kid not in revoked]
        if not usable:
            raise no_key_to_sign_with()
        met, longest = self._clock.now().timestamp() - PUBLISH_AHEAD, min(usable, key=lambda key: self._since[key.kid])
        return next((key for key in reversed(usable) if self._since[key.kid] <= met), longest)

    async def published(self) -> AbstractSet[str]:
        return frozenset(key.kid for key in (await self._current()).keys)

    async def jwks(self) -> bytes:
        return (await self._current()).jwks

    def glance(self) -> bytes | None:
        return None if self._clock.monotonic() - self._looked_at >= POLL_SECONDS else self._set.jwks

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
            now = self._clock.now().timestamp()
            self._since = {key.kid: self._since.get(key.kid, now) for key in self._set.keys}
        except (SigningKeysError, OSError) as error:
            self._log.warning("signing keys not taken over", cause=str(error))
            return
        self._log.info("signing keys changed", newest=self._set.keys[-1].kid, published=len(self._set.keys))


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
