"""The state of one invocation under way: its request, progress, and the duration of each phase."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import InitVar, dataclass, field
from datetime import datetime
from typing import Any

from libs.common.errors import Reason
from libs.common.ids import new_id
from libs.common.redaction.scanner import Scanner
from libs.common.redaction.tenant_scanners import TenantScanners
from libs.common.runtime.clock import Clock
from services.executor.domain.approvals.ticket import Ticket
from services.executor.domain.argument_spec import Change
from services.executor.domain.checkpoints.checkpoint import RestoredState
from services.executor.domain.deadlines import Deadline
from services.executor.domain.model import Claim, Decision, PayloadDigest, Question, Request, Reservation
from services.executor.domain.run_channel import RunChannel
from services.executor.domain.states import State, StateHistory
from services.executor.domain.tool import Effect, Tool, VersionIdentity

StartSpan = Callable[[str], AbstractContextManager[None]]


@dataclass(slots=True, eq=False, repr=False)
class Invocation:
    """The mutable state of one call. Only its use case and phases write to it."""

    request: Request
    clock: Clock
    start_span: InitVar[StartSpan | None]
    preview: bool = field(default=False, kw_only=True)
    """True for a preview: the tool must have no effect."""
    invocation_id: str = field(default="", kw_only=True)
    """That of a job. Other calls get a new one."""
    attempt: InitVar[int] = field(default=1, kw_only=True)
    """That of a job. Other calls are made once."""

    # Identity and time.
    run_id: str = field(init=False)
    """Identifies this attempt. A former attempt that comes back late changes nothing of it."""
    began: float = field(init=False)
    deadline: Deadline = field(init=False)
    history: StateHistory = field(init=False, default_factory=StateHistory)
    enter: Callable[[State], None] = field(init=False)
    """Enters a state that the transition table allows."""
    phases: Phases = field(init=False)

    # The job that the call is an attempt of, if any.
    before_run: Callable[[], Awaitable[None]] | None = field(init=False, default=None)
    """Awaited before the tool runs. Raises if it must not."""
    channel: RunChannel | None = field(init=False, default=None)
    """Connects the run with its job; None for a call that a caller waits for."""
    pause_timer: Callable[[], AbstractContextManager[None]] | None = field(init=False, default=None)
    """Stops the time of the tool while its caller takes its own; None while no tool runs."""
    restore: Callable[[Tool], Awaitable[RestoredState]] | None = field(init=False, default=None)
    """Finds where a run of a job starts; None for other calls, and for jobs that lost too many replicas."""
    resumed_from: str = field(init=False, default="")
    """The checkpoint that the run started from, for records; empty for the beginning."""
    attempts: int = field(init=False, default=0)

    # The tool and its arguments.
    tool: Tool | None = field(init=False, default=None)
    unavailable: VersionIdentity | None = field(init=False, default=None)
    """The version that the call asks for, if it exists and may not run."""
    arguments: dict[str, Any] = field(init=False, default_factory=dict)
    """The arguments that hooks and policy judge."""
    call_input: dict[str, Any] | None = field(init=False, default=None)
    """The arguments that the tool gets, where the mesh adds internal ones; None if they are the same."""
    changes: tuple[Change, ...] = field(init=False, default=())
    payload: PayloadDigest | None = field(init=False, default=None)
    """The arguments as records show them."""
    scanner: Scanner | None = field(init=False, default=None)
    """Redacts what is shown of this call; it knows the sensitive values of the arguments. None before they are
    known."""
    resources: tuple[str, ...] = field(init=False, default=())
    """The resources that the arguments name."""
    small: bool = field(init=False, default=True)
    """True if its arguments are small enough to be handled on the event loop."""

    # The decision, its approval, and what the call holds.
    question: Question | None = field(init=False, default=None)
    decision: Decision | None = field(init=False, default=None)
    decision_record: str = field(init=False, default="")
    ticket: str = field(init=False, default="")
    """The ticket that it asked for or uses, by name."""
    awaited_ticket: Callable[[str], Awaitable[str]] | None = field(init=False, default=None)
    """Finds, by tool, the ticket of the job that the same key started; None for a call that cannot wait for one."""
    approval: Ticket | None = field(init=False, default=None)
    """The approved ticket that it redeems just before its run."""
    claim: Claim | None = field(init=False, default=None)
    reservation: Reservation | None = field(init=False, default=None)
    settling: asyncio.Task[None] | None = field(init=False, default=None)
    refused_calls: int = field(init=False, default=1)
    """How many refused calls its record stands for."""

    # The run.
    sandbox: str = field(init=False, default="")
    code: str = field(init=False, default="")
    """The sandbox as the runner named it. It keeps the code that was decided about available until the call ends."""
    start_wait: float = field(init=False, default=0.0)
    """The seconds that it waited for its sandbox to start."""
    run_started: float | None = field(init=False, default=None)
    changed: tuple[str, ...] = field(init=False, default=())
    context: tuple[str, ...] = field(init=False, default=())
    hooks: tuple[str, ...] = field(init=False, default=())
    effects: tuple[Effect, ...] = field(init=False, default=())
    """The changes that the call made: committed ones, and those that the tool reported outside its sandbox."""
    foreseen: tuple[Effect, ...] = field(init=False, default=())
    """The changes that a preview predicts, or that are being committed."""
    violations: tuple[Effect, ...] = field(init=False, default=())
    costs: tuple[tuple[str, int], ...] = field(init=False, default=())
    """The price of the call and the reported costs, by category."""
    undo: dict[str, Any] | None = field(init=False, default=None)

    # The outcome and its commit.
    evidence: list[str] = field(init=False, default_factory=list)
    result_id: str = field(init=False, default="")
    retrieved: datetime | None = field(init=False, default=None)
    """When a cached result was computed, where one is used."""
    stale: bool = field(init=False, default=False)
    """True if that result is used because the service failed."""
    replayed: bool = field(init=False, default=False)
    reason: Reason | None = field(init=False, default=None)
    closed: bool = field(init=False, default=False)
    """True once the record of its outcome was handed to the log."""
    committing: bool = field(init=False, default=False)
    """True once its effects are being committed. A failing sibling no longer cancels it."""
    prepared: bool = field(init=False, default=False)
    """True once its result is stored under its key, to be found if this process dies during the commit."""
    forget_commit: Callable[[], Awaitable[None]] | None = field(init=False, default=None)
    """Removes the note of the commit, once the outcome is settled."""
    caller_left: bool = field(init=False, default=False)
    """True if the caller left during the commit. The outcome is recorded all the same."""

    def __post_init__(self, start_span: StartSpan | None, attempt: int) -> None:
        self.invocation_id = self.invocation_id or new_id()
        self.run_id = self.invocation_id if attempt == 1 else f"{self.invocation_id}.{attempt}"
        self.began = self.clock.monotonic()
        self.deadline = Deadline(self.request, self.began)
        self.enter = self.history.enter
        self.phases = Phases(self.clock, start_span)

    @property
    def state(self) -> State:
        """The present state."""
        return self.history.state

    def scanner_of(self, scanners: TenantScanners) -> Scanner:
        """Return the scanner of this call, or that of its tenant while the arguments are unknown."""
        return scanners.of(self.request.caller.tenant) if self.scanner is None else self.scanner

    def note_caller_left(self) -> None:
        """Note that no caller waits for the result. Recording the outcome may take as long as it takes."""
        self.caller_left, self.deadline.answer_by = True, float("inf")

    def elapsed(self) -> float:
        """Return the seconds since the request."""
        return self.clock.monotonic() - self.began


class Phases:
    """Measures consecutive phases, and gives each a span if the call is sampled."""

    __slots__ = ("_clock", "_name", "_span", "_start_span", "_started", "durations")

    def __init__(self, clock: Clock, start_span: StartSpan | None) -> None:
        self._clock, self._start_span = clock, start_span
        self._name, self._started = "", 0.0
        self._span: AbstractContextManager[None] | None = None
        self.durations: list[tuple[str, float]] = []

    def begin(self, name: str) -> None:
        """End the current phase, if any, and begin the next."""
        now = self._clock.monotonic()
        if self._name:
            self.durations.append((self._name, now - self._started))
        self._name, self._started = name, now
        if self._start_span is not None:
            self._change_span(self._start_span(name), None)

    def end(self, error: BaseException | None = None) -> None:
        """End the last phase, with its error. Idempotent."""
        if not self._name:
            return
        self.durations.append((self._name, self._clock.monotonic() - self._started))
        self._name = ""
        if self._span is not None:
            self._change_span(None, error)

    def _change_span(self, next_span: AbstractContextManager[None] | None, error: BaseException | None) -> None:
        current, self._span = self._span, next_span
        if current is not None and error is not None:
            current.__exit__(type(error), error, error.__traceback__)
        elif current is not None:
            current.__exit__(None, None, None)
        if next_span is not None:
            next_span.__enter__()
