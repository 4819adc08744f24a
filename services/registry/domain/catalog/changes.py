"""The change log as watchers see it: numbered changes, positions in them, and tokens that stand for positions."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass

from services.registry.domain.model import ToolVersion


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the log of one database. Another database, or one made anew, has another epoch."""

    epoch: str
    sequence: int

    def token(self) -> str:
        """Return the opaque form that clients keep."""
        return base64.urlsafe_b64encode(f"{self.epoch} {self.sequence}".encode()).rstrip(b"=").decode()

    @classmethod
    def of_token(cls, token: str) -> Position | None:
        """Read a token; None for one that this service never made, so that it is answered with a snapshot."""
        try:
            text = base64.urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4)).decode("ascii")
        except (binascii.Error, UnicodeError):
            return None
        epoch, _, number = text.rpartition(" ")
        return cls(epoch, int(number)) if epoch and number.isdigit() and len(number) < 20 else None


@dataclass(frozen=True, slots=True)
class Horizon:
    """How far a log reaches."""

    epoch: str
    oldest: int
    """The number of the oldest change that is kept; one past the last when none is."""
    last: int

    def reaches(self, position: Position) -> bool:
        """True if every change after the position is still there, and the position itself has happened."""
        return position.epoch == self.epoch and self.oldest - 1 <= position.sequence <= self.last


@dataclass(frozen=True, slots=True)
class Change:
    """One change: the version as it then stood, or None when that change removed it."""

    sequence: int
    name: str
    version: ToolVersion | None


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Consecutive changes and the horizon they were read under."""

    horizon: Horizon
    changes: Sequence[Change]
