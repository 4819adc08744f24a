"""Takes the frames of a worker that precede the answer of a call: what the tool prints and what it reports."""

from __future__ import annotations

from typing import Any

from services.executor.adapters.runners.channel.tool_reports import ToolReports
from services.executor.adapters.runners.worker.answer import MalformedAnswerError
from services.executor.adapters.runners.worker.output import OutputCollector
from services.executor.adapters.secrets.call_secrets import NO_SECRETS, CallSecrets


class CallFrames:
    """The frames of one call. A call without a job must not report anything."""

    def __init__(
        self,
        invocation_id: str,
        output: OutputCollector,
        reports: ToolReports | None,
        secrets: CallSecrets = NO_SECRETS,
    ) -> None:
        """`secrets` are removed from what the tool reports."""
        self._invocation_id, self._output, self._reports, self._secrets = invocation_id, output, reports, secrets

    def payload_bytes(self, frame: dict[str, Any]) -> int:
        """Return the size of the payload that follows a frame. Raises MalformedAnswerError."""
        if "output" in frame:
            return 0
        size = frame.get("payload", 0)
        if frame.get("id") != self._invocation_id or self._reports is None or type(size) is not int:
            raise MalformedAnswerError
        if not 0 <= size <= self._reports.payload_limit(frame.get("event")):
            raise MalformedAnswerError
        return size

    async def take(self, frame: dict[str, Any], payload: bytes) -> None:
        """Take a frame and its payload. Raises MalformedAnswerError."""
        if "output" in frame:
            self._output.add(frame)
        elif self._reports is not None:
            fields = self._secrets.remove_from_fields(frame.get("fields"))
            await self._reports.take(frame.get("event"), fields, self._secrets.remove_from(payload))
