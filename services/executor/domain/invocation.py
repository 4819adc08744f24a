"""One invocation under way: what is known about it so far, where it is, and how long each phase took."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

from libs.common.errors import Reason
from libs.common.ids import new_id
from libs.common.runtime.clock import Clock
from services.executor.domain.deadlines import Deadline
from services.executor.domain.model import Change, Claim, Decision, Payload, Question, Request, Reservation
from services.executor.domain.states import State, Track
from services.executor.domain.tool import Effect, Tool

StartSpan = Callable[[str], AbstractContextManager[None]]


class Invocation:
    """The working memory of one call. Only the use case writes to it."""

    __slots__ = (
        "arguments",
        "asked",
        "attempts",
        "began",
        "call_input",
        "changed",
        "changes",
        "claim",
        "clock",
        "closed",
        "context",
        "costs",
        "deadline",
        "decision",
        "decision_record",
        "effects",
        "ending",
        "enter",
        "evidence",
        "hooks",
        "invocation_id",
        "left",
        "phases",
        "preview",
        "question",
        "ran_from",
        "reason",
        "replayed",
        "request",
        "reservation",
        "result_id",
        "retrieved",
        "sandbox",
        "settling",
        "tool",
        "track",
        "undo",
        "violations",
    )

    def __init__(self, request: Request, clock: Clock, start_span: StartSpan | None, *, preview: bool = False) -> None:
        self.invocation_id = new_id()
        self.request = request
        self.preview = preview
        """True if nothing is to be done, only to be said what would be."""
        self.clock = clock
        self.began = clock.monotonic()
        self.deadline = Deadline(request, self.began)
        self.track = Track()
        self.enter = self.track.enter
        """Moves on to a state that the table allows."""
        self.phases = Phases(clock, start_span)
        self.tool: Tool | None = None
        self.arguments: dict[str, Any] = {}
        """What hooks and policy judge."""
        self.call_input: dict[str, Any] | None = None
        """What the tool gets, where that is more: what only the mesh may set."""
        self.changes: tuple[Change, ...] = ()
        self.asked: Payload | None = None
        self.question: Question | None = None
        """What policy was asked."""
        self.decision: Decision | None = None
        self.decision_record = ""
        self.evidence: list[str] = []
        self.claim: Claim | None = None
        self.reservation: Reservation | None = None
        self.settling: asyncio.Task[None] | None = None
        self.ran_from: float | None = None
        self.changed: tuple[str, ...] = ()
        self.context: tuple[str, ...] = ()
        self.hooks: tuple[str, ...] = ()
        self.effects: tuple[Effect, ...] = ()
        self.violations: tuple[Effect, ...] = ()
        self.costs: tuple[tuple[str, int], ...] = ()
        self.undo: dict[str, Any] | None = None
        self.attempts = 0
        self.result_id = ""
        self.retrieved: datetime | None = None
        """When the facts were read, where an earlier result is used again."""
        self.sandbox = ""
        self.replayed = False
        self.reason: Reason | None = None
        self.closed = False
        """True once the record that ends it was handed over."""
        self.ending = False
        """True once its effects are becoming real: from then on it has its own ending, whatever becomes of its siblings."""
        self.left = False
        """True once nobody waits for its answer, although it is seen through."""

    @property
    def state(self) -> State:
        """Where it is."""
        return self.track.state

    def leave(self) -> None:
        """Note that nobody waits for the answer any more: what is said about it has as long as it takes."""
        self.left, self.deadline.answer_by = True, float("inf")

    def elapsed(self) -> float:
        """Seconds since it was asked for."""
        return self.clock.monotonic() - self.began


class Phases:
    """Times phases that follow one another, and gives each a span if the call is sampled."""

    __slots__ = ("_clock", "_name", "_span", "_start_span", "_started", "durations")

    def __init__(self, clock: Clock, start_span: StartSpan | None) -> None:
        self._clock, self._start_span = clock, start_span
        self._name, self._started = "", 0.0
        self._span: AbstractContextManager[None] | None = None
        self.durations: list[tuple[str, float]] = []

    def begin(self, name: str) -> None:
        """End the phase that is under way, if any, and begin the next."""
        now = self._clock.monotonic()
        if self._name:
            self.durations.append((self._name, now - self._started))
        self._name, self._started = name, now
        if self._start_span is not None:
            self._change_span(self._start_span(name), None)

    def end(self, error: BaseException | None = None) -> None:
        """End the last phase, with the error that it ended in. Ending twice ends once."""
        if not self._name:
            return
        self.durations.append((self._name, self._clock.monotonic() - self._started))
        self._name = ""
        if self._span is not None:
            self._change_span(None, error)

    def _change_span(self, following: AbstractContextManager[None] | None, error: BaseException | None) -> None:
        present, self._span = self._span, following
        if present is not None and error is not None:
            present.__exit__(type(error), error, error.__traceback__)
        elif present is not None:
            present.__exit__(None, None, None)
        if following is not None:
            following.__enter__()
