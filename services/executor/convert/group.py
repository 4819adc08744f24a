"""Messages about groups of calls to the domain and back. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolmesh.common.v1 import error_reason_pb2 as cpb
from toolmesh.executor.v1 import executor_service_pb2 as pb
from toolmesh.executor.v1 import result_envelope_pb2 as epb

from libs.common.call_context import Call
from libs.common.rpc.status import envelope
from services.executor.convert import invocation as convert
from services.executor.domain.invoke_group.invoke_group import GroupOutcome
from services.executor.domain.invoke_group.plan import GroupCall
from services.executor.domain.tool import SiblingFailure

_ON_FAILURE: dict[int, SiblingFailure] = {
    pb.SIBLING_FAILURE_IGNORE: SiblingFailure.IGNORE,
    pb.SIBLING_FAILURE_CANCEL_SIBLINGS: SiblingFailure.CANCEL_SIBLINGS,
    pb.SIBLING_FAILURE_CANCEL_DEPENDENT: SiblingFailure.CANCEL_DEPENDENT,
}


def group_of(message: pb.InvokeGroupRequest, call: Call) -> tuple[GroupCall, ...]:
    """Return the calls that were asked for. All of them have the caller and the deadline of the group."""
    return tuple(
        GroupCall(
            convert.request_of(each.request, call), tuple(each.depends_on), on_failure=_ON_FAILURE.get(each.on_failure)
        )
        for each in message.calls
    )


def group_response_of(outcomes: Iterable[GroupOutcome]) -> pb.InvokeGroupResponse:
    """Return the answer."""
    return pb.InvokeGroupResponse(outcomes=[_outcome(outcome) for outcome in outcomes])


def _outcome(outcome: GroupOutcome) -> pb.GroupOutcome:
    if outcome.result is not None:
        return pb.GroupOutcome(result=convert.envelope_of(outcome.result))
    assert outcome.error is not None
    error = envelope(outcome.error)
    return pb.GroupOutcome(result=_synthetic(outcome, error), error=error)


def _synthetic(outcome: GroupOutcome, error: cpb.ErrorEnvelope) -> epb.ResultEnvelope:
    """What stands where the tool's result would: it tells each of its readers what happened.

    It has no structured content, for only the tool could have made one that satisfies its schema.
    """
    said = f"No result: {error.message} ({error.code})"
    fields: dict[str, Any] = {
        "result_id": outcome.result_id,
        "invocation_id": error.invocation_id,
        "status": epb.RESULT_STATUS_SYNTHETIC,
        "model_facing_content": f"{said} {error.resolution}".strip(),
        "ui_facing_summary": said,
        "transcript_search_text": said,
        "redaction_state": epb.REDACTION_STATE_NONE,
        "evidence_refs": error.evidence_refs,
        "trace_id": error.trace_id,
        "create_time": {"seconds": int(outcome.ended.timestamp()), "nanos": outcome.ended.microsecond * 1000},
    }
    if outcome.tool is not None:
        fields["provenance"] = {"tool_version": outcome.tool.name, "tool_digest": outcome.tool.digest}
    return epb.ResultEnvelope(**fields)
