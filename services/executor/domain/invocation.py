"""The state of one invocation under way: its request, progress, and the duration of each phase."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
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


class Invocation:
    """The mutable state of one call. Only its use case and phases write to it."""

    __slots__ = (
        "approval",
        "arguments",
        "attempts",
        "awaited_ticket",
        "before_run",
        "began",
        "call_input",
        "caller_left",
        "changed",
        "changes",
        "channel",
        "claim",
        "clock",
        "closed",
        "committing",
        "context",
        "costs",
        "deadline",
        "decision",
        "decision_record",
        "effects",
        "enter",
        "evidence",
        "foreseen",
        "forget_commit",
        "history",
        "hooks",
        "invocation_id",
        "pause_timer",
        "payload",
        "phases",
        "prepared",
        "preview",
        "question",
        "reason",
        "refused_calls",
        "replayed",
        "request",
        "reservation",
        "resources",
        "restore",
        "result_id",
        "resumed_from",
        "retrieved",
        "run_id",
        "run_started",
        "sandbox",
        "scanner",
        "settling",
        "small",
        "start_wait",
        "ticket",
        "tool",
        "unavailable",
        "undo",
        "violations",
    )

    def __init__(
        self,
        request: Request,
        clock: Clock,
        start_span: StartSpan | None,
        *,
        preview: bool = False,
        invocation_id: str = "",
        attempt: int = 1,
    ) -> None:
        """`invocation_id` and `attempt` are those of a job; other calls are made once and get a new id."""
        self.invocation_id = invocation_id or new_id()
        self.run_id = self.invocation_id if attempt == 1 else f"{self.invocation_id}.{attempt}"
        """Identifies this attempt. A former attempt that comes back late changes nothing of it."""
        self.before_run: Callable[[], Awaitable[None]] | None = None
        """Awaited before the tool runs. Raises if it must not."""
        self.channel: RunChannel | None = None
        """Connects the run with its job; None for a call that a caller waits for."""
        self.pause_timer: Callable[[], AbstractContextManager[None]] | None = None
        """Stops the time of the tool while its caller takes its own; None while no tool runs."""
        self.restore: Callable[[Tool], Awaitable[RestoredState]] | None = None
        """Finds where a run of a job starts; None for other calls, and for jobs that lost too many replicas."""
        self.resumed_from = ""
        """The checkpoint that the run started from, for records; empty for the beginning."""
        self.request = request
        self.preview = preview
        """True for a preview: the tool must have no effect."""
        self.clock = clock
        self.began = clock.monotonic()
        self.deadline = Deadline(request, self.began)
        self.history = StateHistory()
        self.enter = self.history.enter
        """Enters a state that the transition table allows."""
        self.phases = Phases(clock, start_span)
        self.tool: Tool | None = None
        self.unavailable: VersionIdentity | None = None
        """The version that the call asks for, if it exists and may not run."""
        self.arguments: dict[str, Any] = {}
        """The arguments that hooks and policy judge."""
        self.call_input: dict[str, Any] | None = None
        """The arguments that the tool gets, where the mesh adds internal ones; None if they are the same."""
        self.changes: tuple[Change, ...] = ()
        self.payload: PayloadDigest | None = None
        """The arguments as records show them."""
        self.scanner: Scanner | None = None
        """Redacts what is shown of this call; it knows the sensitive values of the arguments. None before they are
        known."""
        self.resources: tuple[str, ...] = ()
        """The resources that the arguments name."""
        self.small = True
        """True if its arguments are small enough to be handled on the event loop."""
        self.question: Question | None = None
        self.decision: Decision | None = None
        self.ticket = ""
        """The ticket that it asked for or uses, by name."""
        self.awaited_ticket: Callable[[str], Awaitable[str]] | None = None
        """Finds, by tool, the ticket of the job that the same key started; None for a call that cannot wait for one."""
        self.approval: Ticket | None = None
        """The approved ticket that it redeems just before its run."""
        self.decision_record = ""
        self.evidence: list[str] = []
        self.claim: Claim | None = None
        self.reservation: Reservation | None = None
        self.settling: asyncio.Task[None] | None = None
        self.start_wait = 0.0
        """The seconds that it waited for its sandbox to start."""
        self.run_started: float | None = None
        self.changed: tuple[str, ...] = ()
        self.context: tuple[str, ...] = ()
        self.hooks: tuple[str, ...] = ()
        self.effects: tuple[Effect, ...] = ()
        """The changes that the call made: committed ones, and those that the tool reported outside its sandbox."""
        self.foreseen: tuple[Effect, ...] = ()
        """The changes that a preview predicts, or that are being committed."""
        self.violations: tuple[Effect, ...] = ()
        self.costs: tuple[tuple[str, int], ...] = ()
        """The price of the call and the reported costs, by category."""
        self.undo: dict[str, Any] | None = None
        self.attempts = 0
        self.refused_calls = 1
        """How many refused calls its record stands for."""
        self.result_id = ""
        self.retrieved: datetime | None = None
        """When a cached result was computed, where one is used."""
        self.sandbox = ""
        self.replayed = False
        self.reason: Reason | None = None
        self.closed = False
        """True once the record of its outcome was handed to the log."""
        self.committing = False
        """True once its effects are being committed. A failing sibling no longer cancels it."""
        self.prepared = False
        """True once its result is stored under its key, to be found if this process dies during the commit."""
        self.forget_commit: Callable[[], Awaitable[None]] | None = None
        """Removes the note of the commit, once the outcome is settled."""
        self.caller_left = False
        """True if the caller left during the commit. The outcome is recorded all the same."""

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
