"""Shows the events of an invocation to its client: progress and log lines as notifications."""

from __future__ import annotations

from typing import Any

from toolmesh.executor.v1.invocation_pb2 import (
    INVOCATION_STATE_AWAITING_APPROVAL,
    LOG_SEVERITY_DEBUG,
    LOG_SEVERITY_ERROR,
    LOG_SEVERITY_INFO,
    LOG_SEVERITY_WARNING,
    InvocationEvent,
    LogMessage,
    Progress,
)

from services.gateway.mcp.context import McpContext
from services.gateway.mcp.invocations.event_ids import EventId, ProgressToken, encode_event_id
from services.gateway.mcp.invocations.questions import ClientRequest, Question

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_LEVEL = {
    LOG_SEVERITY_DEBUG: "debug",
    LOG_SEVERITY_INFO: "info",
    LOG_SEVERITY_WARNING: "warning",
    LOG_SEVERITY_ERROR: "error",
}
# The revision in which a stream may begin with an event without a message.
_PRIMED = "2025-11-25"


class Reports:
    """Sends what a client asked to hear. Progress only ever grows, as the protocol demands."""

    def __init__(
        self, context: McpContext, progress_token: ProgressToken, *, meta: dict[str, Any] | None = None
    ) -> None:
        """`meta` is the `_meta` of every message to the client."""
        self._context, self._token, self._meta = context, progress_token, meta
        self._last = -1.0
        self._is_task = meta is not None

    async def begin(self, invocation_id: str, sequence: int) -> None:
        """Begin the stream of a session with an id, so that the client can come back to it."""
        if self._context.session and self._context.version >= _PRIMED and not self._context.stream.opened:
            await self._context.stream.prime(self.event_id(invocation_id, sequence))

    async def show(self, invocation_id: str, event: InvocationEvent) -> None:
        """Send the notification of an event, if it has one."""
        message = self._message(event)
        if message is not None:
            await self._context.stream.send(message, self.event_id(invocation_id, event.sequence))

    async def ask(self, question: Question, request: ClientRequest, sequence: int) -> None:
        """Send a question. The client answers it with a message of its own."""
        params = request.params
        if self._context.version < _PRIMED:
            # Older revisions know one mode alone, and no name for it.
            params = {name: value for name, value in params.items() if name != "mode"}
        if self._meta:
            params = {**params, "_meta": self._meta}
        message = {"jsonrpc": "2.0", "id": question.request_id, "method": request.method, "params": params}
        await self._context.stream.send(message, self.event_id(question.invocation_id, sequence))

    def event_id(self, invocation_id: str, sequence: int) -> str:
        """Return the id of an event; empty where streams are not resumed."""
        if not self._context.session:
            return ""
        return encode_event_id(
            EventId(invocation_id, sequence, self._context.request_id, self._token, is_task=self._is_task)
        )

    def _message(self, event: InvocationEvent) -> dict[str, Any] | None:
        kind = event.WhichOneof("event")
        if kind == "progress":
            return self._progress(event.progress)
        if kind == "log_message":
            return self._line(event.log_message)
        if kind == "transition" and event.transition.state == INVOCATION_STATE_AWAITING_APPROVAL:
            return self._notify_progress(self._last + 1, None, f"waits for approval {event.transition.reason}".strip())
        return None

    def _progress(self, report: Progress) -> dict[str, Any] | None:
        if report.HasField("percent"):
            return self._notify_progress(report.percent, 100.0, report.message)
        if report.total_steps:
            return self._notify_progress(float(report.current_step), float(report.total_steps), report.message)
        return self._notify_progress(self._last + 1, None, report.message)

    def _notify_progress(self, progress: float, total: float | None, message: str) -> dict[str, Any] | None:
        if self._token is None or progress <= self._last:
            return None
        self._last = progress
        params: dict[str, Any] = {"progressToken": self._token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message:
            params["message"] = message
        return self._notification("notifications/progress", params)

    def _line(self, line: LogMessage) -> dict[str, Any] | None:
        level, least = _LEVEL.get(line.severity, "info"), self._context.client.log_level
        if not least or LEVELS.index(level) < LEVELS.index(least):
            return None
        return self._notification("notifications/message", {"level": level, "logger": "tool", "data": line.text})

    def _notification(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "method": method, "params": {**params, "_meta": self._meta} if self._meta else params}
