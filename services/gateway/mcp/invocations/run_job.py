"""Runs a call as a job: with progress, log lines and questions while its client waits, or as a task."""

from __future__ import annotations

from typing import Any

from google.protobuf.duration_pb2 import Duration
from mcp_types.jsonrpc import MISSING_REQUIRED_CLIENT_CAPABILITY
from toolmesh.executor.v1.executor_service_pb2 import InvokeRequest
from toolmesh.executor.v1.invocation_pb2 import Invocation
from toolmesh.executor.v1.invocation_service_pb2 import (
    ON_DISCONNECT_CANCEL,
    ON_DISCONNECT_CONTINUE,
    StartInvocationRequest,
)

from libs.common.call_context import serving
from libs.common.deadline_header import HIGHEST_MS, allowed_seconds
from services.gateway.mcp.context import McpContext, Result
from services.gateway.mcp.invocations.answer import AnswerQuestion
from services.gateway.mcp.invocations.event_ids import EventId, ProgressToken
from services.gateway.mcp.invocations.follow import Asked, FollowInvocation
from services.gateway.mcp.invocations.outcome import ShowOutcome
from services.gateway.mcp.invocations.questions import answers_of, ask
from services.gateway.mcp.invocations.reports import Reports
from services.gateway.mcp.invocations.request_state import RequestState, decode_state, digest_of, encode_state
from services.gateway.mcp.invocations.tasks import Tasks, input_requests
from services.gateway.mcp.messages import MAX_ID_LENGTH
from services.gateway.mcp.protocol import ProtocolError

JOB_SECONDS = HIGHEST_MS / 1000
"""How long a call takes at most, with its questions. It bounds how long a client that never answers keeps a slot."""


class RunJob:
    """Runs calls of tools that report, ask or take long."""

    def __init__(self, follow: FollowInvocation, outcomes: ShowOutcome, answers: AnswerQuestion, tasks: Tasks) -> None:
        self._follow, self._outcomes, self._answers, self._tasks = follow, outcomes, answers, tasks

    async def start_task(self, request: InvokeRequest, ttl_ms: int | None, context: McpContext) -> Result:
        """Start the call, and return its task."""
        return await self._tasks.start(request, ttl_ms, context)

    async def run(
        self,
        request: InvokeRequest,
        params: dict[str, Any],
        timeout_ms: int | None,
        context: McpContext,
        *,
        may_be_task: bool = True,
    ) -> Result:
        """Return the result of the call, a question that the client answers with its next request, or a task."""
        state = params.get("requestState")
        if state is None and context.client.tasks and may_be_task:
            return await self._tasks.start(request, None, context)
        call = serving()
        call.deadline = call.started + allowed_seconds(context.deadline_ms, timeout_ms, JOB_SECONDS)
        digest = digest_of(request.tool, request.arguments)
        reports = Reports(context, progress_token_of(params))
        if state is None:
            outcome = await self._follow.start(_start(request, context), context, reports)
        else:
            outcome = await self._continue(decode_state(state, digest), params, context, reports)
        if isinstance(outcome, Asked) and state is None:
            outcome = await self._answer_at_once(outcome, params, context, reports)
        if isinstance(outcome, Invocation):
            return await self._outcomes.show(outcome, context)
        return self._question(outcome, digest, context)

    async def resume(self, event: EventId, context: McpContext) -> Result:
        """Go on with a stream that was cut, behind the last event that its client saw."""
        if event.is_task:
            return await self._tasks.follow(event.invocation, event.sequence, context)
        reports = Reports(context, event.progress_token)
        ended = await self._follow.attach(event.invocation, event.sequence, context, reports, owned=True)
        assert isinstance(ended, Invocation)
        return await self._outcomes.show(ended, context)

    async def _continue(
        self, state: RequestState, params: dict[str, Any], context: McpContext, reports: Reports
    ) -> Invocation | Asked:
        answered = await self._answer(state, params.get("inputResponses") or {})
        # Without an answer, the question is asked again.
        after = state.sequence if answered else state.sequence - 1
        return await self._follow.attach(state.question.invocation, after, context, reports, owned=True)

    async def _answer_at_once(
        self, asked: Asked, params: dict[str, Any], context: McpContext, reports: Reports
    ) -> Invocation | Asked:
        """Answer the first question of a server with what the client sent along, if that is all that it asks for."""
        keys = [each.key for each in asked.request.client_requests]
        answer = answers_of(keys, params.get("inputResponses") or {}) if keys else None
        if answer is None:
            return asked
        question, _ = ask(asked.invocation_id, asked.request)
        await self._answers.give(question, answer)
        return await self._follow.attach(question.invocation, asked.sequence, context, reports, owned=True)

    async def _answer(self, state: RequestState, responses: dict[str, Any]) -> bool:
        """Answer the question, if the client did."""
        if state.form == "requests":
            answer = answers_of(state.keys, responses)
            if answer is not None:
                await self._answers.give(state.question, answer)
            return answer is not None
        response = responses.get(state.input_id)
        if response is not None:
            await self._answers.answer(state.question, response)
        return response is not None

    def _question(self, asked: Asked, digest: str, context: McpContext) -> Result:
        if not asked.request.client_requests and not context.client.elicitation:
            self._follow.cancel_soon(f"invocations/{asked.invocation_id}")
            data: Result = {"requiredCapabilities": {"elicitation": {}}}
            raise ProtocolError(MISSING_REQUIRED_CLIENT_CAPABILITY, "the tool asks its caller", data)
        question, _ = ask(asked.invocation_id, asked.request)
        requests = input_requests(asked.request)
        state = RequestState(
            asked.invocation_id, question.input_id, question.form, asked.sequence, digest, tuple(requests)
        )
        return {
            "resultType": "input_required",
            "inputRequests": requests,
            "requestState": encode_state(state),
        }


def progress_token_of(params: dict[str, Any]) -> ProgressToken:
    """Return the token of progress notifications; None if the client wants none."""
    token = (params.get("_meta") or {}).get("progressToken")
    return token if isinstance(token, str | int) and len(str(token)) <= MAX_ID_LENGTH else None


def _start(request: InvokeRequest, context: McpContext) -> StartInvocationRequest:
    """Return the start of a job that ends with its request. While a stateless client answers a question, no request is
    under way: then the time of the job alone ends it."""
    duration = Duration()
    duration.FromMilliseconds(max(1, int((serving().remaining() or JOB_SECONDS) * 1000)))
    client = context.client
    answers_later = context.stateless and (client.elicitation or client.sampling or client.roots)
    on_disconnect = ON_DISCONNECT_CONTINUE if answers_later else ON_DISCONNECT_CANCEL
    return StartInvocationRequest(request=request, max_duration=duration, on_disconnect=on_disconnect)
