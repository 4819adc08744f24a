"""Answers the question of a tool that waits for input."""

from __future__ import annotations

from libs.common.json.jsonio import parse, refuse_many_containers
from services.executor.domain import errors
from services.executor.domain.jobs import errors as job_errors
from services.executor.domain.jobs.job import Job, JobOwner
from services.executor.domain.jobs.ports import CompileSchema, JobQuestions, JobSignals
from services.executor.domain.jobs.requests.find_invocations import FindInvocations


class AnswerQuestion:
    """Stores answers. The replica that runs the job hands them to its tool."""

    def __init__(
        self, find: FindInvocations, questions: JobQuestions, signals: JobSignals, compile_schema: CompileSchema
    ) -> None:
        self._find, self._questions, self._signals = find, questions, signals
        self._compile_schema = compile_schema

    async def execute(self, owner: JobOwner, invocation_id: str, input_id: str, content: bytes) -> Job:
        """Return the job once the answer is durable. The question stays where the answer is refused.

        Raises INVOCATION_NOT_FOUND, RESUME_FAILED if the job does not wait with this question, INVALID_JSON, and
        ARGUMENTS_INVALID for an answer that breaks the schema of the question.
        """
        question = await self._questions.question(owner, invocation_id)
        if question is None:
            raise job_errors.invocation_not_found(invocation_id)
        if question.input_id != input_id:
            raise job_errors.question_not_open(input_id, question.input_id)
        refuse_many_containers(content)
        value = parse(content)
        if question.schema and (broken := self._compile_schema(question.schema).violations(value)):
            raise errors.arguments_invalid(broken)
        if not await self._questions.answer(owner, invocation_id, input_id, content):
            raise job_errors.question_not_open(input_id, "")
        self._signals.wake()
        return await self._find.get(owner, invocation_id)
