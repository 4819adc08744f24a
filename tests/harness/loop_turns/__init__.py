"""Measures the event loops of a mesh's services. `sitecustomize` runs inside of them."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
SERVICES = ("gateway", "registry", "authz", "executor", "approval", "audit")


class Reading(NamedTuple):
    """One turn of a loop, or one hold of the interpreter's lock."""

    kind: str
    at: float
    seconds: float
    stack: list[str]


@dataclass(frozen=True)
class LoopTurns:
    """The readings of a mesh that was started with `environment`."""

    folder: Path
    _read: dict[str, tuple[int, list[Reading]]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """The variables that make the services measure themselves."""
        return {"PYTHONPATH": str(FOLDER), "LOOP_TURNS": str(self.folder)}

    def longest(self, service: str, kind: str, since: float, until: float | None = None) -> Reading:
        """Return the longest reading of a service since a moment of the monotonic clock."""
        last = time.monotonic() if until is None else until
        readings = self._readings(service)
        within = [reading for reading in readings if reading.kind == kind and since <= reading.at <= last]
        return max(within, key=lambda reading: reading.seconds, default=Reading(kind, since, 0.0, []))

    def _readings(self, service: str) -> list[Reading]:
        """Return all readings of a service; what was read before is not parsed again."""
        offset, readings = self._read.get(service, (0, []))
        path = self.folder / f"{service}.log"
        if path.exists():
            with path.open("rb") as log:
                log.seek(offset)
                whole = log.read().rpartition(b"\n")[0]
            readings = readings + [Reading(**json.loads(line)) for line in whole.splitlines()]
            self._read[service] = (offset + len(whole) + (1 if whole else 0), readings)
        return readings
