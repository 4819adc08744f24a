"""What was taken back, as every process of the mesh sees it: sets that are close at hand, and how old they may be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from libs.common.auth.identity import TokenLineage
from libs.common.runtime.clock import Clock

# A view that heard nothing for this long is not believed: whoever relies on it must ask the issuer.
MAX_SILENCE = 5.0
_REPLACED_SETS = 64

TargetKind = Literal["token", "subject", "key"]


class Revoked(NamedTuple):
    """One revocation, as far as those who must keep to it need to know it."""

    kind: TargetKind
    target: str
    revoked_at: float
    """Seconds since the epoch. Of a subject, only tokens made at or before it are revoked."""
    expires_at: float
    """From when on nothing can hold that it applies to."""


@dataclass(slots=True)
class RevocationView:
    """What is revoked, and which policies are asked now. Written by whoever follows the issuer, read with every call."""

    clock: Clock
    max_silence: float = MAX_SILENCE
    policy_set_version: str = ""
    """The set of policies that is asked now; empty before the first word from the issuer."""
    _marks: dict[str, float] = field(default_factory=dict)
    _subjects: dict[str, tuple[float, float]] = field(default_factory=dict)
    _replaced: dict[str, None] = field(default_factory=dict)
    _heard: float = float("-inf")
    _listeners: list[Callable[[], None]] = field(default_factory=list)

    def clears(self, token_lineage: TokenLineage) -> bool:
        """Say whether a token of this token_lineage is known not to be revoked. Never waits: this is asked with every call."""
        return self.clock.monotonic() - self._heard <= self.max_silence and not self.refuses(token_lineage)

    def refuses(self, token_lineage: TokenLineage) -> bool:
        """Say whether a token of this token_lineage is known to be revoked."""
        if self._marks and not self._marks.keys().isdisjoint(token_lineage.marks):
            return True
        if self._subjects:
            for holder, made in token_lineage.holders:
                revoked = self._subjects.get(holder)
                if revoked is not None and made <= revoked[0]:
                    return True
        return False

    def believed(self) -> bool:
        """Say whether the view is young enough to rely on what is not in it."""
        return self.clock.monotonic() - self._heard <= self.max_silence

    def outdated(self, policy_set_version: str) -> bool:
        """Say whether a set of policies is known to have been replaced by another."""
        return policy_set_version in self._replaced and policy_set_version != self.policy_set_version

    def revoked_keys(self) -> frozenset[str]:
        """Return the ids of keys that must not be used any more."""
        return frozenset(mark.removeprefix("key:") for mark in self._marks if mark.startswith("key:"))

    def listen(self, listener: Callable[[], None]) -> None:
        """Call this whenever something more is revoked."""
        self._listeners.append(listener)

    def apply(self, revoked: Iterable[Revoked], *, policy_set_version: str, snapshot: bool) -> None:
        """Take over a word from the issuer; a snapshot replaces what was known before."""
        self._heard = self.clock.monotonic()
        if policy_set_version != self.policy_set_version:
            self._change_set(policy_set_version)
        if snapshot:
            self._marks, self._subjects = {}, {}
        more = [one for one in revoked if self._add(one)]
        if more:
            self._forget_what_is_over()
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
            before = self._subjects.get(one.target, (float("-inf"), 0.0))
            if one.revoked_at <= before[0]:
                return False
            self._subjects[one.target] = (one.revoked_at, max(one.expires_at, before[1]))
            return True
        mark = f"{one.kind}:{one.target}"
        known = mark in self._marks
        self._marks[mark] = one.expires_at
        return not known

    def _forget_what_is_over(self) -> None:
        """Keep the sets as small as what can still matter; done only when they grow."""
        now = self.clock.now().timestamp()
        self._marks = {mark: until for mark, until in self._marks.items() if until > now}
        self._subjects = {name: told for name, told in self._subjects.items() if told[1] > now}
