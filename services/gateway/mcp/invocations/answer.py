"""Hands the answer of a client to the tool that asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolmesh.executor.v1.invocation_service_pb2 import (
    CancelInvocationRequest,
    InvocationInput,
    ResumeInvocationRequest,
)

from services.gateway.mcp.invocations.questions import Question, answer_of

if TYPE_CHECKING:
    from toolmesh.executor.v1.invocation_service_pb2_grpc import InvocationServiceAsyncStub


class AnswerQuestion:
    """Answers questions by the name of their invocation, at any replica."""

    def __init__(self, invocations: InvocationServiceAsyncStub) -> None:
        self._invocations = invocations

    async def answer(self, question: Question, result: dict[str, Any]) -> None:
        """Resume the invocation with the answer. One that a person declined is cancelled: its tool waits for nothing
        else. Fails like ResumeInvocation; the question stays open then."""
        answer = answer_of(question, result)
        if answer is None:
            await self.decline(question)
            return
        await self.give(question, answer)

    async def give(self, question: Question, answer: bytes) -> None:
        """Resume the invocation with an answer as the tool takes it. Fails like ResumeInvocation."""
        given = InvocationInput(input_id=question.input_id, content=answer)
        await self._invocations.ResumeInvocation(ResumeInvocationRequest(name=question.invocation, input=given))

    async def decline(self, question: Question) -> None:
        """Cancel the invocation that asked."""
        await self._invocations.CancelInvocation(CancelInvocationRequest(name=question.invocation))
