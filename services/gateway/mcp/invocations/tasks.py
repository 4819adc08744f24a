"""The methods of tasks: invocations that a client started, and comes back to."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import grpc.aio
from google.protobuf.duration_pb2 import Duration
from mcp_types.jsonrpc import INVALID_PARAMS, MISSING_REQUIRED_CLIENT_CAPABILITY
from toolmesh.executor.v1.invocation_pb2 import InputRequest, Invocation
from toolmesh.executor.v1.invocation_service_pb2 import (
    CancelInvocationRequest,
    GetInvocationRequest,
    ListInvocationsRequest,
    StartInvocationRequest,
    WaitInvocationRequest,
)

from libs.common.call_context import serving
from libs.common.errors import MeshError, Reason
from libs.common.rpc.status import from_envelope
from services.gateway.domain.response import envelope
from services.gateway.mcp.context import McpContext, Result
from services.gateway.mcp.invocations.answer import AnswerQuestion
from services.gateway.mcp.invocations.follow import FollowInvocation
from services.gateway.mcp.invocations.outcome import ShowOutcome
from services.gateway.mcp.invocations.questions import answers_of, ask, client_requests
from services.gateway.mcp.invocations.reports import Reports
from services.gateway.mcp.invocations.task_view import RELATED_TASK_META_KEY, TASKS_EXTENSION, has_ended, task_of
from services.gateway.mcp.protocol import ProtocolError, code_of
from services.gateway.mcp.tools.content import error_result
from services.gateway.transport.call_pipeline import peer_error

if TYPE_CHECKING:
    from toolmesh.executor.v1.executor_service_pb2 import InvokeRequest
    from toolmesh.executor.v1.invocation_service_pb2_grpc import InvocationServiceAsyncStub

LONGEST_TTL_MS = 24 * 3600 * 1000
_TASK_ID = re.compile(r"[0-9a-f-]{36}")
_PAGE_SIZE = 100
_CANCEL_SECONDS = 10


class Tasks:
    """Serves tasks. In a session a client asks for each; a stateless client says that it takes them."""

    def __init__(
        self,
        invocations: InvocationServiceAsyncStub,
        follow: FollowInvocation,
        outcomes: ShowOutcome,
        answers: AnswerQuestion,
    ) -> None:
        self._invocations, self._follow, self._outcomes, self._answers = invocations, follow, outcomes, answers

    async def start(self, request: InvokeRequest, ttl_ms: int | None, context: McpContext) -> Result:
        """Start an invocation, and return its task. It ends with its time to live, one day at most."""
        lifetime = Duration()
        asked = ttl_ms if isinstance(ttl_ms, int) and ttl_ms > 0 else LONGEST_TTL_MS
        lifetime.FromMilliseconds(min(max(asked, 1000), LONGEST_TTL_MS))
        started = await self._invocations.StartInvocation(
            StartInvocationRequest(request=request, max_duration=lifetime)
        )
        task = task_of(started.invocation, stateless=context.stateless)
        return {"resultType": "task", **task} if context.stateless else {"task": task}

    async def get_task(self, params: dict[str, Any], context: McpContext) -> Result:
        """Return a task; a stateless client also gets its outcome or its question."""
        _require_capability(context)
        invocation = await self._get(params["taskId"])
        task = task_of(invocation, stateless=context.stateless)
        return {**task, **await self._details(invocation, context)} if context.stateless else task

    async def list_tasks(self, params: dict[str, Any], context: McpContext) -> Result:
        """Return a page of the caller's invocations, the newest first, whatever started them."""
        request = ListInvocationsRequest(page_size=_PAGE_SIZE, page_token=params.get("cursor") or "")
        response = await self._invocations.ListInvocations(request)
        tasks = [task_of(invocation, stateless=False) for invocation in response.invocations]
        return (
            {"tasks": tasks, "nextCursor": response.next_page_token} if response.next_page_token else {"tasks": tasks}
        )

    async def get_result(self, params: dict[str, Any], context: McpContext) -> Result:
        """Wait for the end of a task, and return what its call would have returned."""
        return await self.follow((await self._get(params["taskId"])).name, 0, context)

    async def follow(self, name: str, after: int, context: McpContext) -> Result:
        """Follow a task to its end for a client that waits."""
        related = {RELATED_TASK_META_KEY: {"taskId": name.removeprefix("invocations/")}}
        ended = await self._follow.attach(name, after, context, Reports(context, None, meta=related), owned=False)
        assert isinstance(ended, Invocation)
        try:
            result = await self._outcomes.show(ended, context)
        except MeshError as error:
            if not error.row.mcp_tool_result:
                raise
            result = error_result(error, serving().trace.trace_id)
        return {**result, "_meta": {**result.get("_meta", {}), **related}}

    async def cancel_task(self, params: dict[str, Any], context: McpContext) -> Result:
        """Cancel a task. In a session one that has ended is refused, and the answer is the cancelled task."""
        _require_capability(context)
        invocation = await self._get(params["taskId"])
        if context.stateless:
            await self._invocations.CancelInvocation(CancelInvocationRequest(name=invocation.name))
            return {}
        if has_ended(invocation):
            raise ProtocolError(INVALID_PARAMS, "the task has ended", status=200)
        await self._invocations.CancelInvocation(CancelInvocationRequest(name=invocation.name))
        wait = WaitInvocationRequest(name=invocation.name, timeout=Duration(seconds=_CANCEL_SECONDS))
        return task_of((await self._invocations.WaitInvocation(wait)).invocation, stateless=False)

    async def update_task(self, params: dict[str, Any], context: McpContext) -> Result:
        """Take the answers to questions of a task. Those to questions that are not open are ignored."""
        _require_capability(context)
        invocation = await self._get(params["taskId"])
        asked, responses = invocation.input_request, params["inputResponses"]
        question, _ = ask(invocation.invocation_id, asked)
        if asked.client_requests:
            answers = answers_of([each.key for each in asked.client_requests], responses)
            if answers is not None:
                await self._answers.give(question, answers)
        elif asked.input_id and (answer := responses.get(asked.input_id)) is not None:
            await self._answers.answer(question, answer)
        return {}

    async def _details(self, invocation: Invocation, context: McpContext) -> dict[str, Any]:
        if invocation.input_request.input_id and not has_ended(invocation):
            return {"inputRequests": input_requests(invocation.input_request)}
        if invocation.HasField("result"):
            return {"result": await self._outcomes.show(invocation, context)}
        if not invocation.HasField("error") or task_of(invocation, stateless=True)["status"] == "cancelled":
            return {}
        error, trace_id = from_envelope(invocation.error), serving().trace.trace_id
        if error.row.mcp_tool_result:
            # The call has a result, and that says what failed.
            return {"status": "completed", "result": error_result(error, trace_id)}
        return {"error": {"code": code_of(error), "message": error.message, "data": envelope(error, trace_id)}}

    async def _get(self, task_id: str) -> Invocation:
        if not _TASK_ID.fullmatch(task_id):
            raise _not_found()
        try:
            request = GetInvocationRequest(name=f"invocations/{task_id}")
            return (await self._invocations.GetInvocation(request)).invocation
        except grpc.aio.AioRpcError as failure:
            error = peer_error(failure)
            raise _not_found() if error.reason is Reason.INVOCATION_NOT_FOUND else error from None


def input_requests(asked: InputRequest) -> dict[str, Any]:
    """Return a question as a stateless client gets it: by its name, with the requests that it stands for."""
    return {key: {"method": each.method, "params": each.params} for key, each in client_requests(asked).items()}


def _not_found() -> ProtocolError:
    return ProtocolError(INVALID_PARAMS, "there is no such task", status=200)


def _require_capability(context: McpContext) -> None:
    if context.stateless and not context.client.tasks:
        data: Result = {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}
        raise ProtocolError(MISSING_REQUIRED_CLIENT_CAPABILITY, "the client must support tasks", data)
