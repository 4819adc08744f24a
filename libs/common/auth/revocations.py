"""The revocations that a process knows, and how old that knowledge may be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from libs.common.auth.identity import TokenLineage
from libs.common.runtime.clock import Clock

# A view without news for this long is not trusted; its user must ask the issuer.
MAX_SILENCE = 5.0
_REPLACED_SETS = 64

TargetKind = Literal["token", "subject", "key"]


class Revoked(NamedTuple):
    """One revocation, as services need it."""

    kind: TargetKind
    target: str
    revoked_at: float
    """Seconds since the epoch. For a subject, only tokens issued at or before it are revoked."""
    expires_at: float
    """After this time no token exists that it applies to."""
    tenant: str = ""
    """For a subject, the tenant whose tokens are revoked; empty for those of every tenant."""


@dataclass(slots=True)
class RevocationView:
    """The revocations and the active policy set. Written by the follower of the issuer, read with every call."""

    clock: Clock
    max_silence: float = MAX_SILENCE
    policy_set_version: str = ""
    """The active policy set; empty before the first message of the issuer."""
    _marks: dict[str, float] = field(default_factory=dict)
    _subjects: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    _replaced: dict[str, None] = field(default_factory=dict)
    _updated_at: float = float("-inf")
    _listeners: list[Callable[[], None]] = field(default_factory=list)

    def clears(self, token_lineage: TokenLineage) -> bool:
        """Return whether a token is known not to be revoked. Never waits: it is called with every call."""
        return self.clock.monotonic() - self._updated_at <= self.max_silence and not self.refuses(token_lineage)

    def refuses(self, token_lineage: TokenLineage) -> bool:
        """Return whether a token is known to be revoked."""
        if self._marks and not self._marks.keys().isdisjoint(token_lineage.marks):
            return True
        if self._subjects:
            return any(self._lost(holder, token_lineage.tenant, made) for holder, made in token_lineage.holders)
        return False

    def _lost(self, holder: str, tenant: str, made: float) -> bool:
        """Return whether a subject lost its tokens that were made until then, in every tenant or in this one."""
        for place in {"", tenant}:
            revoked = self._subjects.get((place, holder))
            if revoked is not None and made <= revoked[0]:
                return True
        return False

    def believed(self) -> bool:
        """Return whether the view is recent enough to be trusted."""
        return self.clock.monotonic() - self._updated_at <= self.max_silence

    def outdated(self, policy_set_version: str) -> bool:
        """Return whether a policy set is known to be replaced."""
        return policy_set_version in self._replaced and policy_set_version != self.policy_set_version

    def revoked_keys(self) -> frozenset[str]:
        """Return the ids of revoked keys."""
        return frozenset(mark.removeprefix("key:") for mark in self._marks if mark.startswith("key:"))

    def listen(self, listener: Callable[[], None]) -> None:
        """Call the listener whenever something more is revoked."""
        self._listeners.append(listener)

    def apply(self, revoked: Iterable[Revoked], *, policy_set_version: str, snapshot: bool) -> None:
        """Apply a message of the issuer; a snapshot replaces the known revocations."""
        self._updated_at = self.clock.monotonic()
        if policy_set_version != self.policy_set_version:
            self._change_set(policy_set_version)
        if snapshot:
            self._marks, self._subjects = {}, {}
        more = [one for one in revoked if self._add(one)]
        if more:
            self._drop_expired()
            for listener in self._listeners:
                listener()

    def _change_set(self, version: str) -> None:
        if self.policy_set_version:
            self._replaced[self.policy_set_version] = None
        self._replaced.pop(version, None)
        while len(self._replaced) > _REPLACED_SETS:
            del self._replaced[next(iter(self._replaced))]
        self.policy_set_version = version

    def _add(self, one: Revoked) -> bool:
        if one.kind == "subject":
            name = (one.tenant, one.target)
            before = self._subjects.get(name, (float("-inf"), 0.0))
            if one.revoked_at <= before[0]:
                return False
            self._subjects[name] = (one.revoked_at, max(one.expires_at, before[1]))
            return True
        mark = f"{one.kind}:{one.target}"
        known = mark in self._marks
        self._marks[mark] = one.expires_at
        return not known

    def _drop_expired(self) -> None:
        """Drop revocations that no longer matter; done only when the sets grow."""
        now = self.clock.now().timestamp()
        self._marks = {mark: until for mark, until in self._marks.items() if until > now}
        self._subjects = {name: revoked for name, revoked in self._subjects.items() if revoked[1] > now}
