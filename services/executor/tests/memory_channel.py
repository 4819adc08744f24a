"""A run channel in memory, for tests of runners."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from msgspec.structs import replace

from libs.common.errors import MeshError
from services.executor.domain import errors
from services.executor.domain.run import RunRequest
from services.executor.domain.run_channel import CheckpointState, InputQuestion, ProgressReport
from services.executor.domain.tool import Tool
from services.executor.tests.packing import python_tool


class MemoryChannel:
    """Keeps what a run reports. A test answers its questions and cancels it."""

    def __init__(self, resume_state: Any = None) -> None:
        self.resume_state = None if resume_state is None else json.dumps(resume_state).encode()
        self.canceled: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.reports: list[ProgressReport] = []
        self.lines: list[tuple[str, str]] = []
        self.parts: list[Any] = []
        self.saved: list[CheckpointState] = []
        self.questions: list[InputQuestion] = []
        self.answers: asyncio.Queue[Any] = asyncio.Queue()
        self.save_error: MeshError | None = None

    def cancel(self) -> None:
        self.canceled.set_result("canceled by the test")

    def progress(self, report: ProgressReport) -> None:
        self.reports.append(report)

    def log(self, severity: str, text: str) -> None:
        self.lines.append((severity, text))

    def partial_result(self, content: bytes) -> None:
        self.parts.append(json.loads(content))

    async def ask(self, question: InputQuestion) -> bytes:
        self.questions.append(question)
        answering = asyncio.ensure_future(self.answers.get())
        await asyncio.wait([answering, self.canceled], return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            answering.cancel()
            raise errors.canceled()
        return json.dumps(answering.result()).encode()

    async def save(self, checkpoint: CheckpointState) -> None:
        if self.save_error is not None:
            raise self.save_error
        self.saved.append(checkpoint)

    @property
    def states(self) -> list[Any]:
        """The states that were saved."""
        return [json.loads(checkpoint.state) for checkpoint in self.saved]


def on(channel: MemoryChannel, work: RunRequest) -> RunRequest:
    """Return a run that is connected with the channel."""
    return replace(work, channel=channel)


def job_tool(function: str, **changes: Any) -> Tool:
    """Return a tool that reports to its job."""
    return python_tool(
        f"tricks/jobs:{function}", **{"progress_supported": True, "cancellation_supported": True, **changes}
    )
