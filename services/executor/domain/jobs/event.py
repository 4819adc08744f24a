"""The events of a job, as they are stored and read."""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

from msgspec import Struct

from services.executor.domain.checkpoints.checkpoint import Checkpoint
from services.executor.domain.run_channel import ClientRequest, ProgressReport
from services.executor.domain.states import State

TRANSITION = "transition"
"""The kind of an event that enters a state. It has no report."""


class ProgressMade(Struct, frozen=True, tag_field="kind", tag="progress"):
    """How far the tool was."""

    report: ProgressReport
    elapsed: float
    """Seconds since the tool started."""


class LogEntry(Struct, frozen=True, tag_field="kind", tag="log_message"):
    """One line that the tool logged for its caller."""

    severity: str
    text: str


class PartialContent(Struct, frozen=True, tag_field="kind", tag="partial_result"):
    """A part of the result, as JSON."""

    content: bytes


class InputAsked(Struct, frozen=True, tag_field="kind", tag="input_request"):
    """A question of the tool."""

    input_id: str
    message: str
    schema: bytes
    requests: tuple[ClientRequest, ...] = ()


class CheckpointMade(Struct, frozen=True, tag_field="kind", tag="checkpoint"):
    """A checkpoint that was stored, or that the run started from."""

    checkpoint: Checkpoint


Report: TypeAlias = ProgressMade | LogEntry | PartialContent | InputAsked | CheckpointMade


class JobEvent(Struct, frozen=True):
    """One event of a job. Sequences count up from 1 without gaps."""

    sequence: int
    time: datetime
    state: State
    """The state that was entered; with a report, the state at the time."""
    reason: str = ""
    report: Report | None = None
    """None for a change of state."""


class ReportBatch(Struct, frozen=True):
    """Reports of one attempt of a job that are stored together. A batch that is stored twice counts once."""

    invocation_id: str
    attempt: int
    first: int
    """The number of its first report; the reports of an attempt are numbered from 1."""
    reports: tuple[Report, ...]


def kind_of(report: Report) -> str:
    """Return the kind of an event with this report."""
    return str(report.__struct_config__.tag)
