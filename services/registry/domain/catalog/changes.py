"""The change log as watchers see it: numbered changes, positions, and the resume tokens that encode positions."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass

from services.registry.domain.model import ToolVersion


@dataclass(frozen=True, slots=True)
class Position:
    """A position in the change log of one database. A new or restored database has a different epoch."""

    epoch: str
    sequence: int

    def token(self) -> str:
        """Encode the position as an opaque token for clients."""
        return base64.urlsafe_b64encode(f"{self.epoch} {self.sequence}".encode()).rstrip(b"=").decode()

    @classmethod
    def of_token(cls, token: str) -> Position | None:
        """Decode a token; None for a token that this service did not create, which leads to a snapshot."""
        try:
            text = base64.urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4)).decode("ascii")
        except (binascii.Error, UnicodeError):
            return None
        epoch, _, number = text.rpartition(" ")
        return cls(epoch, int(number)) if epoch and number.isdigit() and len(number) < 20 else None


@dataclass(frozen=True, slots=True)
class Horizon:
    """The range of change numbers that a log holds."""

    epoch: str
    oldest: int
    """The number of the oldest change in the log; `last + 1` when the log is empty."""
    last: int

    def reaches(self, position: Position) -> bool:
        """Return whether the log still has every change after the position, and has reached the position itself."""
        return position.epoch == self.epoch and self.oldest - 1 <= position.sequence <= self.last


@dataclass(frozen=True, slots=True)
class Change:
    """One change: the version after it, or None when the change removed the version."""

    sequence: int
    name: str
    version: ToolVersion | None


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Consecutive changes and the horizon of the log when they were read."""

    horizon: Horizon
    changes: Sequence[Change]
