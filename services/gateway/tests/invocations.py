"""Jobs of an executor that a test controls: their arguments say what they report, ask and wait for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
from toolmesh.executor.v1 import invocation_pb2 as ipb
from toolmesh.executor.v1 import invocation_service_pb2 as pb
from toolmesh.executor.v1 import invocation_service_pb2_grpc
from toolmesh.executor.v1.result_envelope_pb2 import RESULT_STATUS_SUCCEEDED, ResultEnvelope

from libs.common.errors import MeshError, Reason
from libs.common.ids import new_id
from libs.common.rpc.status import envelope


class Job:
    """One job. `steps`: reports of progress. `line`: a log line. `question`: the schema of a question. `approval` and
    `hold`: waits for `release`. `fail`: ends with that error."""

    def __init__(self, start: Any) -> None:
        self.start, self.script = start, orjson.loads(start.request.arguments or b"{}")
        self.invocation = ipb.Invocation(invocation_id=new_id(), state=ipb.INVOCATION_STATE_QUEUED)
        self.invocation.tool_version = f"tools/{start.request.tool}/versions/1.0.0"
        self.invocation.name = f"invocations/{self.invocation.invocation_id}"
        self.invocation.create_time.GetCurrentTime()
        deadline = self.invocation.create_time.ToMilliseconds() + (start.max_duration.ToMilliseconds() or 60_000)
        self.invocation.deadline.FromMilliseconds(deadline)
        self.events: list[Any] = []
        self.changed = asyncio.Condition()
        self.release, self.cancelled = asyncio.Event(), asyncio.Event()
        self.answer, self.answered = b"", asyncio.Event()
        self.streams, self.attached, self.detached = 0, asyncio.Event(), asyncio.Event()
        self.task = asyncio.create_task(self._run())

    async def add(self, **event: Any) -> None:
        async with self.changed:
            self.events.append(ipb.InvocationEvent(sequence=len(self.events) + 1, **event))
            self.changed.notify_all()

    async def event(self, after: int) -> Any:
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.events) > after)
            return self.events[after]

    async def enter(self, state: Any, reason: str = "") -> None:
        self.invocation.state = state
        await self.add(transition=ipb.StateTransition(state=state, reason=reason))

    async def _run(self) -> None:
        result: dict[str, Any] = {}
        if self.script.get("approval"):
            self.invocation.ticket = "tickets/1"
            await self.enter(ipb.INVOCATION_STATE_AWAITING_APPROVAL, "tickets/1")
            await self._until(self.release)
        await self.enter(ipb.INVOCATION_STATE_RUNNING)
        for step in range(1, self.script.get("steps", 0) + 1):
            total = self.script["steps"]
            await self.add(progress=ipb.Progress(current_step=step, total_steps=total, message=f"step {step}"))
        if line := self.script.get("line"):
            await self.add(log_message=ipb.LogMessage(severity=ipb.LOG_SEVERITY_INFO, text=line))
        if "question" in self.script or "requests" in self.script:
            asked = ipb.InputRequest(input_id="q1", message="well?", schema=orjson.dumps(self.script.get("question")))
            for key, method in self.script.get("requests", {}).items():
                asked.client_requests.add(key=key, method=method, params=b'{"message":"server"}')
            self.invocation.input_request.CopyFrom(asked)
            self.invocation.state = ipb.INVOCATION_STATE_NEEDS_INPUT
            await self.add(input_request=asked)
            await self._until(self.answered)
            self.invocation.ClearField("input_request")
            if self.answer:
                result["answer"] = orjson.loads(self.answer)
        if self.script.get("hold"):
            await self._until(self.release)
        await self._end(result)

    async def _until(self, event: asyncio.Event) -> None:
        either = [asyncio.create_task(event.wait()), asyncio.create_task(self.cancelled.wait())]
        await asyncio.wait(either, return_when="FIRST_COMPLETED")
        for task in either:
            task.cancel()

    async def _end(self, result: dict[str, Any]) -> None:
        if self.cancelled.is_set():
            self.invocation.state = ipb.INVOCATION_STATE_CANCELED
            self.invocation.error.CopyFrom(envelope(MeshError(Reason.CANCELED)))
        elif reason := self.script.get("fail"):
            self.invocation.state = ipb.INVOCATION_STATE_FAILED
            self.invocation.error.CopyFrom(envelope(MeshError(Reason[reason])))
        else:
            self.invocation.state = ipb.INVOCATION_STATE_SUCCEEDED
            content = orjson.dumps({"done": True, **result})
            shown = ResultEnvelope(status=RESULT_STATUS_SUCCEEDED, structured_content=content)
            self.invocation.result.CopyFrom(shown)
        await self.add(ended=self.invocation)


class Invocations(invocation_service_pb2_grpc.InvocationServiceServicer):
    """Starts, shows, cancels and answers jobs. They are of no one in particular."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.started = asyncio.Event()

    def forget(self) -> None:
        """End what runs, for the next test."""
        for job in self.jobs.values():
            job.task.cancel()
        self.jobs.clear()
        self.started = asyncio.Event()

    async def first(self) -> Job:
        """Return the first job, once there is one."""
        await self.started.wait()
        return next(iter(self.jobs.values()))

    def _start(self, start: Any) -> Job:
        if start.request.tool == "core.fail_permission_denied":
            raise MeshError(Reason.PERMISSION_DENIED)
        job = Job(start)
        self.jobs[job.invocation.name] = job
        self.started.set()
        return job

    def _job(self, name: str) -> Job:
        if name not in self.jobs:
            raise MeshError(Reason.INVOCATION_NOT_FOUND)
        return self.jobs[name]

    async def StartInvocation(self, request: Any, context: Any) -> Any:
        return pb.StartInvocationResponse(invocation=self._start(request).invocation)

    async def GetInvocation(self, request: Any, context: Any) -> Any:
        return pb.GetInvocationResponse(invocation=self._job(request.name).invocation)

    async def ListInvocations(self, request: Any, context: Any) -> Any:
        return pb.ListInvocationsResponse(invocations=[job.invocation for job in self.jobs.values()])

    async def WaitInvocation(self, request: Any, context: Any) -> Any:
        job = self._job(request.name)
        await job.task
        return pb.WaitInvocationResponse(invocation=job.invocation)

    async def CancelInvocation(self, request: Any, context: Any) -> Any:
        job = self._job(request.name)
        job.cancelled.set()
        return pb.CancelInvocationResponse(invocation=job.invocation)

    async def ResumeInvocation(self, request: Any, context: Any) -> Any:
        job = self._job(request.name)
        if request.input.input_id != "q1" or job.answer:
            raise MeshError(Reason.FAILED_PRECONDITION)
        if request.input.content == b'"refused"':
            raise MeshError(Reason.ARGUMENTS_INVALID)
        job.answer = request.input.content
        job.answered.set()
        return pb.ResumeInvocationResponse(invocation=job.invocation)

    async def StreamInvocation(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:
        first = await anext(aiter(request_iterator))
        started = first.WhichOneof("message") == "start"
        job = self._start(first.start) if started else self._job(first.attach.name)
        after = 0 if started else first.attach.after_sequence
        job.streams += 1
        job.attached.set()
        try:
            yield pb.StreamInvocationResponse(invocation=job.invocation)
            while True:
                event = await job.event(after)
                after += 1
                yield pb.StreamInvocationResponse(event=event)
                if event.WhichOneof("event") == "ended":
                    return
        finally:
            job.streams -= 1
            if not job.streams:
                job.detached.set()
