"""Jobs: invocations that run without their caller, and their events."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from libs.common.errors import MeshError
from services.executor.domain.checkpoints.checkpoint import Checkpoint
from services.executor.domain.jobs.event import InputAsked
from services.executor.domain.model import Caller, Request, Result
from services.executor.domain.states import State


class JobOwner(Struct, frozen=True):
    """Whose job it is. No other subject or tenant sees it."""

    tenant: str
    subject: str

    @staticmethod
    def of(caller: Caller) -> JobOwner:
        """Return the owner of the jobs that a caller starts."""
        return JobOwner(caller.tenant, caller.subject)


class JobBounds(Struct, frozen=True):
    """How many jobs may wait and run, in all replicas together."""

    waiting: int = 10_000
    waiting_per_tenant: int = 2_500
    waiting_bytes_per_tenant: int = 64 << 20
    """The size of the requests of one tenant that wait."""
    per_tenant: int = 8
    """The most jobs of one tenant that run at once."""
    per_tool: int = 16
    """The most jobs of one tool that run at once."""


class Callback(Struct, frozen=True):
    """Where the end of a job is reported, and the secret that signs the report."""

    url: str
    secret: str

    def __repr__(self) -> str:
        return "Callback(...)"


class NewJob(Struct, frozen=True):
    """An accepted call, as it is stored."""

    invocation_id: str
    request: Request
    """The call. Its deadline belongs to the request that started it, and is not stored."""
    token: str
    """The caller's token. It is stored encrypted, and deleted when the job ends."""
    tool: str
    """The qualified name of the tool."""
    tool_version: str
    tool_digest: str
    arguments_digest: str
    priority: int
    max_seconds: float
    transitions: tuple[State, ...]
    """The states that admission passed through, in order."""
    evidence: tuple[str, ...] = ()
    resumable: bool = False
    """True if its arguments are kept for a resumption after its end."""
    resumed_from: str = ""
    """The invocation whose checkpoint it starts from."""
    first_checkpoint: tuple[Checkpoint, bytes] | None = None
    """The checkpoint that it starts from, and what is stored of it."""
    callback: Callback | None = None
    parent: str = ""
    """The invocation that it is cancelled with."""
    ticket: str = ""
    """The ticket that it waits for or uses."""
    cancel_when_detached: bool = False
    """True if it is cancelled when no stream is attached to it for some time."""


class Job(Struct, frozen=True):
    """A job as a reader sees it."""

    invocation_id: str
    owner: JobOwner
    tool_version: str
    tool_digest: str
    state: State
    sequence: int
    """The sequence of its last event."""
    attempt: int
    """How often a replica began to run it."""
    executor_id: str
    create_time: datetime
    deadline: datetime
    start_time: datetime | None = None
    end_time: datetime | None = None
    cancel_requested: bool = False
    idempotency_key: str = ""
    task_id: str = ""
    native_call_id: str = ""
    trace_id: str = ""
    resumed_from: str = ""
    """The invocation whose checkpoint it started from."""
    cancel_when_detached: bool = False
    parent: str = ""
    """The invocation that it is cancelled with."""
    ticket: str = ""
    """The ticket that it waits for or used."""
    outcome: Result | MeshError | None = None
    """Set once it ended, where the reader asked for it."""
    question: InputAsked | None = None
    """What its tool asks, where the reader asked for it."""

    @property
    def name(self) -> str:
        """The resource name."""
        return f"invocations/{self.invocation_id}"

    @property
    def ended(self) -> bool:
        """Whether it has its outcome."""
        return self.end_time is not None


class ClaimedJob(Struct, frozen=True, weakref=True):
    """A job that this process holds the lease of."""

    invocation_id: str
    attempt: int
    request: Request
    token: str
    seconds_left: float
    """Until its deadline, by the clock of the database."""
    cancel_requested: bool
    losses: int = 0
    """How many replicas disappeared while they ran it, since it got further the last time."""
    taken_over: bool = False
    """True if this claim takes it over from a replica that disappeared or stopped."""
    resumed_from: str = ""
    """The invocation whose checkpoint it started from."""
    ticket: str = ""
    """The ticket that it waited for. It belongs to this very call."""


class AwaitingJob(Struct, frozen=True):
    """A job that waits for the approval of its ticket."""

    invocation_id: str
    ticket: str
    request: Request | None
    """None if no key opens it any more."""
    token: str
    seconds_left: float
    """Until its deadline, by the clock of the database."""


class Renewal(Struct, frozen=True):
    """What the renewal of a claim finds."""

    cancel_requested: bool
    answered: str = ""
    """The id of the question that the caller answered; empty for none."""


class PendingQuestion(Struct, frozen=True):
    """The question that a job waits with."""

    input_id: str
    """Empty for a job that has none."""
    schema: bytes = b""


class JobFilter(Struct, frozen=True):
    """Which jobs to list."""

    owner: JobOwner
    states: tuple[State, ...] = ()
    tool: str = ""
    start_time: datetime | None = None
    end_time: datetime | None = None


class JobPage(Struct, frozen=True):
    """A page of jobs, and where the next one continues."""

    jobs: tuple[Job, ...]
    next_cursor: tuple[datetime, str] | None = None
