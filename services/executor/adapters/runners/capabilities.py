"""What the runners of an executor can run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The runner kinds, the sandbox tiers that work here, and the loaded packs with their digests."""

    runners: tuple[str, ...]
    tiers: tuple[str, ...] = ()
    packs: tuple[tuple[str, str], ...] = ()
    unkept: tuple[tuple[str, str], ...] = ()
    """The limits that its sandboxes do not keep, with their tiers."""
