"""Converts messages of invocations by name. Pure."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.common.v1 import caller_pb2 as caller_pb
from toolmesh.executor.v1 import invocation_pb2 as ipb
from toolmesh.executor.v1 import invocation_service_pb2 as pb

from libs.common import page_tokens
from libs.common.call_context import Call
from libs.common.rpc.status import envelope
from services.executor.convert.checkpoints import callback_of, checkpoint_of
from services.executor.convert.invocation import envelope_of, request_of
from services.executor.domain.jobs import errors as job_errors
from services.executor.domain.jobs.event import (
    InputAsked,
    JobEvent,
    LogEntry,
    PartialContent,
    ProgressMade,
)
from services.executor.domain.jobs.job import Job, JobFilter, JobOwner, JobPage
from services.executor.domain.jobs.requests.start_invocation import StartRequest
from services.executor.domain.jobs.requests.stream_invocation import Acknowledge, Answer, Cancel, ClientMessage
from services.executor.domain.model import Result
from services.executor.domain.states import State

DEFAULT_PAGE = 100
# The longest life of a job whose caller names none.
DEFAULT_MAX_SECONDS = 86_400.0
DEFAULT_WAIT_SECONDS = 30.0
POLL_SECONDS = 1

_STATES = {state: ipb.InvocationState.Value(f"INVOCATION_STATE_{state.name}") for state in State}
_SEVERITIES = {
    name: ipb.LogSeverity.Value(f"LOG_SEVERITY_{name.upper()}") for name in ("debug", "info", "warning", "error")
}
_STATE_NAMES = {number: state for state, number in _STATES.items()}


def invocation_id_of(name: str) -> str:
    """Return the id of a resource name."""
    return name.removeprefix("invocations/")


def max_seconds_of(message: pb.StartInvocationRequest) -> float:
    """Return how long the invocation may take."""
    return _seconds(message.max_duration) if message.HasField("max_duration") else DEFAULT_MAX_SECONDS


def start_request_of(message: pb.StartInvocationRequest, call: Call) -> StartRequest:
    """Return what is asked for with a start, by the caller of an RPC."""
    detached = message.on_disconnect == pb.ON_DISCONNECT_CANCEL
    return StartRequest(
        request_of(message.request, call),
        call.token,
        max_seconds_of(message),
        detached,
        callback_of(message),
        parent=invocation_id_of(message.parent),
    )


def wait_seconds_of(message: pb.WaitInvocationRequest, remaining: float | None) -> float:
    """Return how long to wait: less than the caller's deadline leaves, so that the answer still arrives."""
    wanted = _seconds(message.timeout) if message.HasField("timeout") else DEFAULT_WAIT_SECONDS
    return wanted if remaining is None else min(wanted, max(remaining * 0.9 - 0.05, 0.0))


def invocation_of(job: Job) -> ipb.Invocation:
    """Return a job as a message, with its outcome where the job has it."""
    message = ipb.Invocation(
        name=job.name,
        invocation_id=job.invocation_id,
        tool_version=job.tool_version,
        tool_digest=job.tool_digest,
        state=_STATES[job.state],
        caller=caller_pb.Caller(subject=job.owner.subject, tenant=job.owner.tenant),
        idempotency_key=job.idempotency_key,
        native_call_id=job.native_call_id,
        task_id=job.task_id,
        trace_id=job.trace_id,
        ticket=job.ticket,
        resumed_from=f"invocations/{job.resumed_from}" if job.resumed_from else "",
        parent=f"invocations/{job.parent}" if job.parent else "",
        executor_id=job.executor_id,
        create_time=_timestamp(job.create_time),
        start_time=_timestamp(job.start_time),
        end_time=_timestamp(job.end_time),
        deadline=_timestamp(job.deadline),
    )
    if job.question is not None:
        message.input_request.CopyFrom(_question_of(job.question))
    if isinstance(job.outcome, Result):
        message.result.CopyFrom(envelope_of(job.outcome))
    elif job.outcome is not None:
        message.error.CopyFrom(envelope(job.outcome))
    return message


def started_of(job: Job, estimate: float | None) -> pb.StartInvocationResponse:
    """Return the answer to a start."""
    answer = pb.StartInvocationResponse(invocation=invocation_of(job), poll_interval=Duration(seconds=POLL_SECONDS))
    if estimate is not None:
        answer.estimated_duration.FromMicroseconds(round(estimate * 1e6))
    return answer


def messages_of(requests: AsyncIterator[pb.StreamInvocationRequest]) -> AsyncIterator[ClientMessage]:
    """Return the messages of a client after its first. Raises INVALID_REQUEST for another start."""
    return (client_message_of(request) async for request in requests)


def client_message_of(request: pb.StreamInvocationRequest) -> ClientMessage:
    """Return one message of a client. Raises INVALID_REQUEST for one that may only be the first."""
    match request.WhichOneof("message"):
        case "input":
            return Answer(request.input.input_id, request.input.content)
        case "cancel":
            return Cancel()
        case "acknowledge":
            return Acknowledge(request.acknowledge.sequence)
    raise job_errors.stream_not_opened("only the first message of a stream starts an invocation or attaches to one")


def heartbeat_of(now: datetime) -> Timestamp:
    """Return a sign of life."""
    stamp = _timestamp(now)
    assert stamp is not None
    return stamp


def event_of(event: JobEvent, invocation_id: str, ended: Job | None = None) -> ipb.InvocationEvent:
    """Return an event as a message; the terminal one with its job."""
    moment = _timestamp(event.time)
    message = ipb.InvocationEvent(sequence=event.sequence, event_time=moment)
    report = event.report
    if ended is not None:
        message.ended.CopyFrom(invocation_of(ended))
    elif report is None:
        message.transition.CopyFrom(
            ipb.StateTransition(state=_STATES[event.state], enter_time=moment, reason=event.reason)
        )
    elif isinstance(report, ProgressMade):
        message.progress.CopyFrom(_progress_of(event, report, invocation_id))
    elif isinstance(report, LogEntry):
        message.log_message.CopyFrom(
            ipb.LogMessage(severity=_SEVERITIES.get(report.severity, ipb.LOG_SEVERITY_INFO), text=report.text)
        )
    elif isinstance(report, PartialContent):
        message.partial_result.content = report.content
    elif isinstance(report, InputAsked):
        message.input_request.CopyFrom(_question_of(report))
    else:
        message.checkpoint.CopyFrom(checkpoint_of(report.checkpoint))
    return message


def _progress_of(event: JobEvent, made: ProgressMade, invocation_id: str) -> ipb.Progress:
    report = made.report
    remaining = report.remaining_seconds
    return ipb.Progress(
        progress_id=f"{invocation_id}/{event.sequence}",
        invocation_id=invocation_id,
        sequence=event.sequence,
        state=_STATES[event.state],
        message=report.message,
        percent=report.percent,
        current_step=report.current_step,
        total_steps=report.total_steps,
        elapsed=_duration(made.elapsed),
        bytes_read=report.bytes_read,
        bytes_written=report.bytes_written,
        line_count=report.line_count,
        report_time=_timestamp(event.time),
        estimated_remaining=None if remaining is None else _duration(remaining),
    )


def _question_of(asked: InputAsked) -> ipb.InputRequest:
    requests = [ipb.ClientRequest(key=each.key, method=each.method, params=each.params) for each in asked.requests]
    return ipb.InputRequest(
        input_id=asked.input_id, message=asked.message, schema=asked.schema, client_requests=requests
    )


def filter_of(message: pb.ListInvocationsRequest, owner: JobOwner) -> JobFilter:
    """Return which invocations are asked for."""
    return JobFilter(
        owner,
        states=tuple(_STATE_NAMES[state] for state in message.states),
        tool=message.tool,
        start_time=_moment(message.start_time) if message.HasField("start_time") else None,
        end_time=_moment(message.end_time) if message.HasField("end_time") else None,
    )


def cursor_of(message: pb.ListInvocationsRequest, owner: JobOwner) -> tuple[datetime, str] | None:
    """Return where the page begins. Raises PAGE_TOKEN_INVALID."""
    return page_tokens.decode_time_cursor(_query(message, owner), message.page_token)


def page_of(message: pb.ListInvocationsRequest, owner: JobOwner, page: JobPage) -> pb.ListInvocationsResponse:
    """Return a page as a message."""
    token = ""
    if page.next_cursor is not None:
        moment, invocation_id = page.next_cursor
        token = page_tokens.encode(_query(message, owner), [moment.isoformat(), invocation_id])
    return pb.ListInvocationsResponse(invocations=[invocation_of(job) for job in page.jobs], next_page_token=token)


def _query(message: pb.ListInvocationsRequest, owner: JobOwner) -> list[object]:
    times = [message.start_time.ToJsonString(), message.end_time.ToJsonString()]
    return [owner.tenant, owner.subject, sorted(message.states), message.tool, *times]


def _duration(seconds: float) -> Duration:
    return Duration(seconds=int(seconds), nanos=int(seconds % 1 * 1e9))


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9


def _moment(stamp: Timestamp) -> datetime:
    return stamp.ToDatetime(tzinfo=UTC)


def _timestamp(moment: datetime | None) -> Timestamp | None:
    return None if moment is None else Timestamp(seconds=int(moment.timestamp()), nanos=moment.microsecond * 1000)
