"""Checkpoints: states of a tool that a later run of the same invocation, or of a resumed one, starts from."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from msgspec import Struct


class CheckpointKind(StrEnum):
    """What a checkpoint is kept for."""

    MICRO = "micro"
    """Made at intervals, kept for an hour after the newest one."""
    MACRO = "macro"
    """Made after events that the manifest declares, kept as long as the job."""
    NAMED = "named"
    """Made by name, kept until it is deleted."""


class CheckpointBounds(Struct, frozen=True):
    """How much is stored."""

    state_bytes: int = 4 << 20
    """The largest state."""
    macros: int = 100
    """The most macro checkpoints of one job. The oldest ones are deleted first."""
    named: int = 16
    """The most named checkpoints of one job."""
    tenant_bytes: int = 256 << 20
    """The most that is stored for one tenant, micro checkpoints aside."""


class Checkpoint(Struct, frozen=True):
    """A stored checkpoint, without its state."""

    invocation_id: str
    number: int
    """Counts the checkpoints of the invocation, from 1."""
    attempt: int
    """The attempt of the job that made it."""
    kind: CheckpointKind
    tool_digest: str
    state_bytes: int
    stored_bytes: int
    digest: str
    """The SHA-256 of the state."""
    create_time: datetime
    parent_number: int = 0
    """The checkpoint that it is a difference to; 0 for a full one."""
    label: str = ""
    expire_time: datetime | None = None

    @property
    def name(self) -> str:
        """The resource name."""
        return f"invocations/{self.invocation_id}/checkpoints/{self.number}"


class CheckpointConfig(Struct, frozen=True):
    """What a manifest declares about checkpoints."""

    interval: float = 30.0
    """The least seconds between two micro checkpoints."""
    macro_events: frozenset[str] = frozenset()


class RestoredState(Struct, frozen=True):
    """Where a run starts: at a checkpoint, or at the beginning."""

    checkpoint: Checkpoint | None = None
    state: bytes | None = None
    unusable: tuple[int, ...] = ()
    """The numbers of newer checkpoints that are damaged, incomplete, or of another version of the tool."""
    last_number: int = 0
    """The highest number of the checkpoints that were found."""
    micro_available: bool = True
    """False if the store of micro checkpoints did not answer."""

    @property
    def source(self) -> str:
        """Where the run starts and what could not be used, in one line; empty for an ordinary start."""
        if self.checkpoint is None and not self.unusable and self.micro_available:
            return ""
        parts = [self.checkpoint.name if self.checkpoint is not None else "beginning"]
        if self.unusable:
            parts.append(f"unusable: {', '.join(map(str, self.unusable))}")
        if not self.micro_available:
            parts.append("micro checkpoints unavailable")
        return "; ".join(parts)
