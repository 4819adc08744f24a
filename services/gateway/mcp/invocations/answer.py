"""Hands the answer of a client to the tool that asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc.aio
import orjson
from toolmesh.executor.v1.invocation_service_pb2 import (
    CancelInvocationRequest,
    GetInvocationRequest,
    InvocationInput,
    ResumeInvocationRequest,
)

from libs.common.errors import MeshError, Reason
from services.gateway.mcp.invocations.questions import Question, answer_of
from services.gateway.mcp.ports import PartialAnswers
from services.gateway.transport.call_pipeline import peer_error

if TYPE_CHECKING:
    from toolmesh.executor.v1.invocation_service_pb2_grpc import InvocationServiceAsyncStub

# As many bytes as the executor takes for all of them.
_MAX_ANSWER_BYTES = 1 << 20


class AnswerQuestion:
    """Answers questions by the name of their invocation, at any replica."""

    def __init__(self, invocations: InvocationServiceAsyncStub, partial: PartialAnswers) -> None:
        self._invocations, self._partial = invocations, partial

    async def answer(self, question: Question, result: dict[str, Any]) -> None:
        """Resume the invocation with the answer. One that a person declined is cancelled: its tool waits for nothing
        else. Fails like ResumeInvocation; the question stays open then."""
        if question.form == "several":
            await self._answer_part(question, orjson.dumps(result))
            return
        answer = answer_of(question, result)
        if answer is None:
            await self.decline(question)
            return
        await self.give(question, answer)

    async def give(self, question: Question, answer: bytes) -> None:
        """Resume the invocation with an answer as the tool takes it. Fails like ResumeInvocation."""
        given = InvocationInput(input_id=question.input_id, content=answer)
        await self._invocations.ResumeInvocation(ResumeInvocationRequest(name=question.invocation, input=given))

    async def _answer_part(self, question: Question, answer: bytes) -> None:
        """Resume the invocation with all answers, once the last of them is there."""
        response = await self._invocations.GetInvocation(GetInvocationRequest(name=question.invocation))
        asked = response.invocation.input_request
        keys = [each.key for each in asked.client_requests]
        if asked.input_id != question.input_id or question.key not in keys:
            raise MeshError(Reason.FAILED_PRECONDITION, message="the question is not open")
        if len(answer) > _MAX_ANSWER_BYTES:
            raise MeshError(Reason.PAYLOAD_TOO_LARGE)
        name = f"{question.invocation_id}/{question.input_id}"
        answers = await self._partial.collect(name, question.key, answer, keys)
        if answers is None:
            return
        try:
            await self.give(question, b"{%s}" % b",".join(orjson.dumps(key) + b":" + answers[key] for key in keys))
        except grpc.aio.AioRpcError as failure:
            # Two replicas may have seen the last answers at the same time, and the other one gave them.
            if peer_error(failure).reason is not Reason.FAILED_PRECONDITION:
                raise
        await self._partial.forget(name, keys)

    async def decline(self, question: Question) -> None:
        """Cancel the invocation that asked."""
        await self._invocations.CancelInvocation(CancelInvocationRequest(name=question.invocation))
