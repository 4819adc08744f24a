"""What a running tool and the job that it runs for say to each other."""

from __future__ import annotations

import asyncio
from typing import Protocol

from msgspec import Struct


class ProgressReport(Struct, frozen=True):
    """How far a tool is. The tool wrote it; every field was bounded when it was read."""

    message: str = ""
    percent: float | None = None
    current_step: int = 0
    total_steps: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    line_count: int = 0
    remaining_seconds: float | None = None


class ClientRequest(Struct, frozen=True):
    """A request of an MCP server to its client, whom the caller stands for."""

    key: str
    method: str
    params: bytes
    """JSON."""


class InputQuestion(Struct, frozen=True):
    """A question of a tool to its caller."""

    message: str
    schema: bytes = b""
    """The JSON Schema of the answer, as JSON; empty for any value."""
    requests: tuple[ClientRequest, ...] = ()
    """The requests that are the question, where an MCP server asks."""


class CheckpointState(Struct, frozen=True):
    """The state that a tool wants to continue from after an interruption."""

    state: bytes
    """JSON, written by the tool."""
    event: str = ""
    """The event that the tool has just completed, such as `phase_complete`; empty for a checkpoint at an interval."""
    label: str = ""
    """The name of a checkpoint that is kept until it is deleted; empty for others."""


class RunChannel(Protocol):
    """Takes what a running tool reports, and gives it what its caller sends. A call without a job has none.

    Reports never wait: progress is merged while the store is slow, and log lines and parts are bounded.
    """

    @property
    def resume_state(self) -> bytes | None:
        """The state of the checkpoint to start from; None for a start from the beginning."""
        ...

    @property
    def canceled(self) -> asyncio.Future[str]:
        """Done when the run should stop by itself: the reason. After a grace the process is terminated."""
        ...

    def progress(self, report: ProgressReport) -> None:
        """Report progress."""
        ...

    def log(self, severity: str, text: str) -> None:
        """Report one line: severity `debug`, `info`, `warning` or `error`."""
        ...

    def partial_result(self, content: bytes) -> None:
        """Report a part of the result, as JSON."""
        ...

    async def ask(self, question: InputQuestion) -> bytes:
        """Return the caller's answer, as JSON. The time that the caller takes is not the tool's."""
        ...

    async def save(self, checkpoint: CheckpointState) -> None:
        """Store a checkpoint, or leave it out where the last one is too recent.

        Raises CHECKPOINT_WRITE_FAILED or the error of a state that is too large; the tool may go on without it.
        """
        ...
