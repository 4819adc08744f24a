"""Signing the log's present state."""

from __future__ import annotations

from libs.common.clock import Clock
from services.audit.domain.model import SignedCheckpoint
from services.audit.domain.note import checkpoint_text, key_id, signed_note, verifier_key
from services.audit.domain.ports import CheckpointKey, LogReader


class GetCheckpoint:
    """Speaks for the log. Its key carries the log's own name, so that no note of one log passes for another's."""

    def __init__(self, log: LogReader, key: CheckpointKey, clock: Clock, *, trust_domain: str) -> None:
        self._log, self._key, self._clock = log, key, clock
        self._trust_domain = trust_domain

    async def __call__(self) -> SignedCheckpoint:
        """Return a checkpoint over everything that was durable when this was called, by whichever replica."""
        head = await self._log.head()
        root, origin = head.tree.root(), self._origin(head.log_id)
        note = signed_note(checkpoint_text(origin, head.tree.size, root), origin, self._key)
        return SignedCheckpoint(head, root, note, key_id(origin, self._key.public_key), self._clock.now())

    async def verifier_key(self) -> str:
        """Return the public key in the form that a verifier of the notes takes."""
        head = await self._log.head()
        return verifier_key(self._origin(head.log_id), self._key.public_key)

    def _origin(self, log_id: str) -> str:
        return f"{self._trust_domain}/audit/{log_id}"
