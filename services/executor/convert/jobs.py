"""Converts messages of invocations by name. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.common.v1 import caller_pb2 as caller_pb
from toolmesh.executor.v1 import invocation_pb2 as ipb
from toolmesh.executor.v1 import invocation_service_pb2 as pb

from libs.common import page_tokens
from libs.common.errors import MeshError, Reason
from libs.common.rpc.status import envelope
from services.executor.convert.invocation import envelope_of
from services.executor.domain.jobs.job import Job, JobEvent, JobFilter, JobOwner, JobPage
from services.executor.domain.model import Result
from services.executor.domain.states import State

DEFAULT_PAGE = 100
# The longest life of a job whose caller names none.
DEFAULT_MAX_SECONDS = 86_400.0
DEFAULT_WAIT_SECONDS = 30.0
POLL_SECONDS = 1

_STATES = {state: ipb.InvocationState.Value(f"INVOCATION_STATE_{state.name}") for state in State}
_STATE_NAMES = {number: state for state, number in _STATES.items()}


def invocation_id_of(name: str) -> str:
    """Return the id of a resource name."""
    return name.removeprefix("invocations/")


def max_seconds_of(message: pb.StartInvocationRequest) -> float:
    """Return how long the invocation may take."""
    return _seconds(message.max_duration) if message.HasField("max_duration") else DEFAULT_MAX_SECONDS


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
        resumed_from=f"invocations/{job.resumed_from}" if job.resumed_from else "",
        executor_id=job.executor_id,
        create_time=_timestamp(job.create_time),
        start_time=_timestamp(job.start_time),
        end_time=_timestamp(job.end_time),
        deadline=_timestamp(job.deadline),
    )
    if isinstance(job.outcome, Result):
        message.result.CopyFrom(envelope_of(job.outcome))
    elif job.outcome is not None:
        message.error.CopyFrom(envelope(job.outcome))
    return message


def started_of(job: Job) -> pb.StartInvocationResponse:
    """Return the answer to a start."""
    return pb.StartInvocationResponse(invocation=invocation_of(job), poll_interval=Duration(seconds=POLL_SECONDS))


def event_of(event: JobEvent) -> pb.WatchInvocationResponse:
    """Return an event as a message."""
    moment = _timestamp(event.time)
    return pb.WatchInvocationResponse(
        sequence=event.sequence,
        event_time=moment,
        transition=ipb.StateTransition(state=_STATES[event.state], enter_time=moment, reason=event.reason),
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
    cursor = page_tokens.decode(_query(message, owner), message.page_token)
    if cursor is None:
        return None
    try:
        moment, invocation_id = cursor
        return datetime.fromisoformat(moment), str(invocation_id)
    except (TypeError, ValueError):
        raise MeshError(Reason.PAGE_TOKEN_INVALID) from None


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


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9


def _moment(stamp: Timestamp) -> datetime:
    return stamp.ToDatetime(tzinfo=UTC)


def _timestamp(moment: datetime | None) -> Timestamp | None:
    return None if moment is None else Timestamp(seconds=int(moment.timestamp()), nanos=moment.microsecond * 1000)
