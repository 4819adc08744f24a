"""Remembers used DPoP proofs, so that each is accepted once."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from libs.common.errors import MeshError, Reason


class _UsedProof(NamedTuple):
    expires_at: float
    subject: str


class ProofCache:
    """Remembers used proofs for as long as they are valid. Without room it refuses proofs: forgetting one would accept
    it twice.

    A subject may hold as many proofs as there is room left. So one subject gets half of the cache at most, several
    share it, and there is always room for another.
    """

    def __init__(self, seconds: float, limit: int = 100_000) -> None:
        self._seconds, self._limit = seconds, limit
        # In the order of use, which is the order of expiry.
        self._used: dict[bytes, _UsedProof] = {}
        self._held: Counter[str] = Counter()

    def first_time(self, proof: bytes, subject: str, now: float) -> bool:
        """Record a proof; return whether it was not used before. Raises OVERLOADED if the subject holds too many."""
        self._forget_expired(now)
        if proof in self._used:
            return False
        if self._held[subject] >= self._limit - len(self._used):
            raise MeshError(Reason.OVERLOADED, retry_after=1.0)
        self._used[proof] = _UsedProof(now + self._seconds, subject)
        self._held[subject] += 1
        return True

    def _forget_expired(self, now: float) -> None:
        while self._used:
            proof, (expires_at, subject) = next(iter(self._used.items()))
            if expires_at > now:
                return
            del self._used[proof]
            self._held[subject] -= 1
            if not self._held[subject]:
                del self._held[subject]
