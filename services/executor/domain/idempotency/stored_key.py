"""Idempotency keys as operators see them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class KeyState(StrEnum):
    """What is known of the call behind a key."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """The effect may have happened. The key answers UNKNOWN_OUTCOME until it is settled."""
    UNRESOLVED = "unresolved"
    """The executor of the call disappeared. The next call with the key resolves it."""


SETTLEABLE = (KeyState.UNKNOWN, KeyState.UNRESOLVED)
"""The states that an operator may settle."""


@dataclass(frozen=True, slots=True)
class StoredKey:
    """An idempotency key in its scope, without its outcome."""

    name: str
    tenant: str
    tool: str
    subject: str
    session: str
    key: str
    state: KeyState
    invocation_id: str
    """The invocation that holds the key, or that stored its outcome."""
    unresolved: tuple[str, ...]
    """Every invocation that may have had the effect, in order."""
    arguments_digest: str
    created: datetime
    expires: datetime


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """The keys of a listing. Empty texts match everything."""

    states: tuple[KeyState, ...] = SETTLEABLE
    tool: str = ""
    subject: str = ""
    key: str = ""
    tenant: str | None = None
    """Only keys of this tenant; None for all."""
