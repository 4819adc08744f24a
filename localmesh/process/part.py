"""What the supervisor knows about anything it keeps running."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from localmesh.process.child import Launch


class PartError(Exception):
    """A part could not be brought up. Carries its name and the reason, in words for a person, and whether it is what the part was told."""

    def __init__(self, part: str, reason: str, *, misled: bool = False) -> None:
        super().__init__(f"{part}: {reason}")
        self.part = part
        self.reason = reason
        self.misled = misled


async def nothing_to_do() -> None:
    """The step of a part that needs none."""


@dataclass(frozen=True)
class Part:
    """One process of the mesh: how it starts, when it is ready, how it stops."""

    name: str
    launch: Launch
    probe: Callable[[], Awaitable[bool]]
    """True once the part does its work. May raise OSError while nobody listens."""
    address: str
    ops: str | None = None
    after: tuple[str, ...] = ()
    """The parts that must be ready before this one is started for the first time."""
    prepare: Callable[[], Awaitable[None]] = nothing_to_do
    """Runs before every start, also after a crash."""
    provision: Callable[[], Awaitable[None]] = nothing_to_do
    """Runs once in a mesh's life, when the part is first ready and before others are told so."""
    quiesce: Callable[[], Awaitable[None]] = nothing_to_do
    """Runs before the stop signal."""
    stop_signal: signal.Signals = signal.SIGTERM
    stop_seconds: float = 5.0
    ready_seconds: float = 60.0
    misled_code: int | None = None
    """The exit code with which it says that a setting is wrong, where it has one."""
