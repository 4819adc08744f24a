"""Measures the event loops of a mesh's services. `sitecustomize` runs inside of them."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
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

    @property
    def environment(self) -> dict[str, str]:
        """The variables that make the services measure themselves."""
        return {"PYTHONPATH": str(FOLDER), "LOOP_TURNS": str(self.folder)}

    def longest(self, service: str, kind: str, since: float, until: float | None = None) -> Reading:
        """Return the longest reading of a service since a moment of the monotonic clock."""
        path, last = self.folder / f"{service}.log", time.monotonic() if until is None else until
        lines = path.read_text().splitlines() if path.exists() else []
        readings = [Reading(**json.loads(line)) for line in lines if line.endswith("}")]
        within = [reading for reading in readings if reading.kind == kind and since <= reading.at <= last]
        return max(within, key=lambda reading: reading.seconds, default=Reading(kind, since, 0.0, []))
