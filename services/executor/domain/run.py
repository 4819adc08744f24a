"""One run of a tool: its input, its log, its notes and its result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Self

import msgspec
from msgspec import Struct

from libs.common.redaction.scanner import Scanner
from services.executor.domain.run_channel import RunChannel
from services.executor.domain.tool import Effect


class LogSource(StrEnum):
    """The origin of a line of a tool's log."""

    STDOUT = "stdout"
    STDERR = "stderr"
    LOG = "log"
    FAILURE = "failure"


class LogLine(NamedTuple):
    """One line that a tool printed or logged."""

    source: LogSource
    text: str


@dataclass(slots=True)
class RunNotes:
    """What a run reports beside its result. Complete also for a run that fails or is stopped."""

    effects: tuple[Effect, ...] = ()
    """The effects that a failed run reported; those of a successful one are in its RunResult."""
    costs: tuple[tuple[str, int], ...] = ()
    """The costs that a failed run reported."""
    lines: list[LogLine] = field(default_factory=list)
    omitted: int = 0
    """The number of characters of lines beyond the limit."""


class CodeLabel(str):
    """The name of a sandbox and the code in it. It keeps that code available for as long as it is referred to."""

    __slots__ = ("code",)
    code: object

    def __new__(cls, name: str, code: object) -> Self:
        """`code` is what the runner needs to find it again."""
        label = super().__new__(cls, name)
        label.code = code
        return label


class RunRequest(Struct, frozen=True):
    """The input of a runner: one run of a tool."""

    invocation_id: str
    arguments: dict[str, Any]
    seconds: float
    """The longest run time. `begin` returns the actual limit."""
    tenant: str = ""
    """The tenant of the run. No sandbox serves two tenants."""
    subject: str = ""
    idempotency_key: str = ""
    preview: bool = False
    """True for a dry run."""
    scanner: Scanner | None = None
    """Redacts what the tool logs. It knows the sensitive values of the arguments."""
    notes: RunNotes = msgspec.field(default_factory=RunNotes)
    """The runner adds to it."""
    channel: RunChannel | None = None
    """Connects the run with its job; None for a call that a caller waits for."""
    caller_capabilities: tuple[str, ...] = ()
    """What the caller can be asked for through the channel."""
    code: str = ""
    """The sandbox and code that were decided about. Empty: the present one."""
    on_launch: Callable[[], None] | None = None
    on_begin: Callable[[], float] | None = None

    def launch(self) -> None:
        """Note that the tool's code may run for this call from now on, although its sandbox is still starting.

        Raises SERVICE_UNAVAILABLE when another call may hold the claim by now.
        """
        if self.on_launch is not None:
            self.on_launch()

    def begin(self) -> float:
        """Start the tool's own time, just before it gets the call, and return its limit in seconds.

        Raises DEADLINE_EXCEEDED or TOKEN_EXPIRED when no time is left, and like `launch`.
        """
        return self.seconds if self.on_begin is None else self.on_begin()


@dataclass(frozen=True, slots=True)
class Forecast:
    """The predicted effects of a call."""

    changes: tuple[Effect, ...] = ()
    preconditions: tuple[tuple[str, bool], ...] = ()
    """Each precondition, and whether it holds."""
    impact: str = ""
    result: Any = None


class RunResult(Struct, frozen=True):
    """The result of a run. Its effects may still have to be committed, after verification."""

    value: Any
    effects: tuple[Effect, ...] = ()
    costs: tuple[tuple[str, int], ...] = ()
    """The cost by category, in micro-units."""
    undo: dict[str, Any] | None = None
    """The arguments for the compensating tool, where the tool returned them."""
    forecast: Forecast | None = None
    """Set for a dry run."""
    commit: Callable[[], Awaitable[None]] | None = None
    """Commits the effects. Raises PARTIAL_FAILURE when only some could be committed."""
    committed: Callable[[], tuple[Effect, ...] | None] | None = None
    """Returns the committed effects, also after a failed commit; None while the commit is under way."""
    rollback: Callable[[], Awaitable[None]] | None = None
    """Discards the effects. Exactly one of the two is called, where they are set."""
    forget: Callable[[], Awaitable[None]] | None = None
    """Removes the note that the effects were committed, once the outcome of the call is settled."""
    journal_volume: str = ""
    """The volume that notes whether the effects were committed."""


class CommitState(StrEnum):
    """Whether the effects of a run were committed."""

    APPLIED = "applied"
    NOT_APPLIED = "not_applied"
    UNKNOWN = "unknown"
