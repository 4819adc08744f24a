"""Groups of calls, and the outcome of each call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolmesh.executor.v1 import executor_service_pb2 as pb

from toolmesh_sdk._wire import requests
from toolmesh_sdk._wire.status import error_from_envelope
from toolmesh_sdk.errors import ToolmeshError
from toolmesh_sdk.keys import resolve_idempotency_key
from toolmesh_sdk.result import Result, parse_result

ON_FAILURE: dict[str, pb.SiblingFailure.ValueType] = {
    "": pb.SIBLING_FAILURE_UNSPECIFIED,
    "ignore": pb.SIBLING_FAILURE_IGNORE,
    "cancel_siblings": pb.SIBLING_FAILURE_CANCEL_SIBLINGS,
    "cancel_dependent": pb.SIBLING_FAILURE_CANCEL_DEPENDENT,
}


@dataclass(frozen=True, slots=True)
class GroupCall:
    """One call of a group; the fields are those of a client's `call`.

    It starts when every call in `depends_on`, indexes into the list from 0, has succeeded. `on_failure` is the effect
    of its failure on the others: ignore, cancel_siblings or cancel_dependent; empty uses the tool's manifest.
    """

    tool: str
    arguments: Mapping[str, Any] | None = None
    version: str = field(default="", kw_only=True)
    idempotency_key: str | None = field(default=None, kw_only=True)
    step: str | None = field(default=None, kw_only=True)
    session_id: str = field(default="", kw_only=True)
    task_id: str = field(default="", kw_only=True)
    native_call_id: str = field(default="", kw_only=True)
    tool_digest: str = field(default="", kw_only=True)
    priority: int = field(default=0, kw_only=True)
    preview_token: str = field(default="", kw_only=True)
    ticket: str = field(default="", kw_only=True)
    depends_on: tuple[int, ...] = field(default=(), kw_only=True)
    on_failure: str = field(default="", kw_only=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one call: a result or an error, never both.

    `synthetic` replaces the result of a failed call; its texts explain the failure to a model or a person.
    """

    result: Result | None = None
    error: ToolmeshError | None = None
    synthetic: Result | None = None

    def result_or_raise(self) -> Result:
        """Return the result, or raise the error."""
        if self.result is None:
            raise self.error or RuntimeError("an outcome without result and error")
        return self.result


def group_request(calls: Iterable[GroupCall], secret: str | bytes) -> pb.InvokeGroupRequest:
    """Build the request. Raises ValueError for an unknown `on_failure`, and for a step without a secret."""
    return pb.InvokeGroupRequest(calls=[_group_call(call, secret) for call in calls])


def is_repeatable(request: pb.InvokeGroupRequest) -> bool:
    """Return whether a group that was lost without a response may be sent again: every call has a key."""
    return all(call.request.idempotency_key for call in request.calls)


def parse_outcomes(response: pb.InvokeGroupResponse) -> list[Outcome]:
    """Convert the outcomes, in order."""
    return [_outcome(outcome) for outcome in response.outcomes]


def _group_call(call: GroupCall, secret: str | bytes) -> pb.GroupCall:
    if call.on_failure not in ON_FAILURE:
        raise ValueError(f"on_failure is one of {', '.join(filter(None, ON_FAILURE))}, or empty")
    key = resolve_idempotency_key(
        secret, call.session_id, call.tool, call.arguments, step=call.step, explicit=call.idempotency_key
    )
    request = requests.invoke(
        *(call.tool, call.arguments, call.version, key),
        *(call.session_id, call.task_id, call.native_call_id, call.tool_digest),
        priority=call.priority,
        preview_token=call.preview_token,
        ticket=call.ticket,
    )
    return pb.GroupCall(request=request, depends_on=call.depends_on, on_failure=ON_FAILURE[call.on_failure])


def _outcome(outcome: pb.GroupOutcome) -> Outcome:
    if not outcome.HasField("error"):
        return _succeeded(outcome)
    error = error_from_envelope(outcome.error)
    return Outcome(error=error, synthetic=parse_result(outcome.result) if outcome.HasField("result") else None)


def _succeeded(outcome: pb.GroupOutcome) -> Outcome:
    try:
        return Outcome(result=parse_result(outcome.result))
    except ToolmeshError as error:
        # An unreadable result must not hide those of its siblings.
        return Outcome(error=error)
