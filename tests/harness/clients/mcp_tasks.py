"""The extension of tasks for the official MCP client, which has their types and leaves the waiting to its host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar, Literal

from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp_types import CallToolResult, GetTaskRequest, GetTaskRequestParams, Result


class TaskResult(Result):
    """A task in place of a result, as the extension has it."""

    result_type: Literal["task"] = "task"
    task_id: str


class NamedGetTaskRequest(GetTaskRequest):
    """The client's own type, with the header that the extension demands."""

    name_param: ClassVar[str | None] = "taskId"


class TaskState(Result):
    """What `tasks/get` of the extension answers."""

    status: str
    status_message: str = ""
    result: dict[str, Any] | None = None


class Tasks(ClientExtension):
    """The extension of tasks: asks for a task until it ends, and hands each of its states to `seen`."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self, seen: Callable[[TaskState], Any]) -> None:
        self._seen = seen

    def claims(self) -> list[ResultClaim[TaskResult]]:
        return [ResultClaim(result_type="task", model=TaskResult, resolve=self._wait)]

    async def _wait(self, task: TaskResult, context: ClaimContext) -> CallToolResult:
        while True:
            get = NamedGetTaskRequest(params=GetTaskRequestParams(task_id=task.task_id))
            state = await context.session.send_request(get, TaskState)
            if state.result is not None:
                return CallToolResult.model_validate(state.result)
            await asyncio.to_thread(self._seen, state)
