"""The description of a supervised process."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from localmesh.process.child import Launch


class PartError(Exception):
    """A part could not be started. Carries its name, the reason, and whether its configuration is the cause."""

    def __init__(self, part: str, reason: str, *, misled: bool = False) -> None:
        super().__init__(f"{part}: {reason}")
        self.part = part
        self.reason = reason
        self.misled = misled


async def no_op() -> None:
    """A step that does nothing."""


async def no_detail() -> str:
    """Says nothing about a part."""
    return ""


@dataclass(frozen=True)
class Part:
    """One process of the mesh: how it starts, when it is ready, how it stops."""

    name: str
    launch: Launch
    probe: Callable[[], Awaitable[bool]]
    """True once the part does its work. May raise OSError while the port is closed."""
    address: str
    ops: str | None = None
    detail: Callable[[], Awaitable[str]] = no_detail
    """What the part says of itself, in lines for operators. May raise OSError while the port is closed."""
    after: tuple[str, ...] = ()
    """The parts that must be ready before this one is started for the first time."""
    initialize: Callable[[], Awaitable[None]] = no_op
    """Runs once in a mesh's life, before the first start."""
    prepare: Callable[[], Awaitable[None]] = no_op
    """Runs before every start, also after a crash."""
    provision: Callable[[], Awaitable[None]] = no_op
    """Runs once in a mesh's life, when the part is first ready and before others learn of it."""
    quiesce: Callable[[], Awaitable[None]] = no_op
    """Runs before the stop signal."""
    stop_signal: signal.Signals = signal.SIGTERM
    stop_seconds: float = 5.0
    ready_seconds: float = 60.0
    misled_code: int | None = None
    """The exit code with which it says that a setting is wrong, where it has one."""
