"""Groups of calls as messages."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from toolmesh.common.v1 import error_reason_pb2 as cpb
from toolmesh.executor.v1 import executor_service_pb2 as pb
from toolmesh.executor.v1 import result_envelope_pb2 as epb

from libs.common.auth.identity import Identity
from libs.common.call_context import Call
from libs.common.trace_context import continue_trace
from services.executor.convert import invocation as convert
from services.executor.convert.group import group_of, group_response_of
from services.executor.domain import errors
from services.executor.domain.invoke_group.invoke_group import GroupOutcome
from services.executor.domain.tool import SiblingFailure
from services.executor.tests.samples import a_result, a_tool

ENDED = datetime(2026, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)


@pytest.fixture
def call() -> Call:
    identity = Identity(subject="did:web:toolmesh.local:users:alice", token_id="t1", expires_at=4e9)
    return Call("/m", continue_trace(None), peer="gateway", identity=identity, deadline=12.5)


def test_every_call_of_a_group_has_its_caller_and_deadline(call: Call) -> None:
    message = pb.InvokeGroupRequest(
        calls=[
            pb.GroupCall(request=pb.InvokeRequest(tool="echo", arguments=b'{"a":1}')),
            pb.GroupCall(
                request=pb.InvokeRequest(tool="say"),
                depends_on=[0],
                on_failure=pb.SIBLING_FAILURE_CANCEL_SIBLINGS,
            ),
        ]
    )
    first, second = group_of(message, call)
    assert (first.request.tool, first.request.arguments) == ("echo", b'{"a":1}')
    assert (first.depends_on, first.on_failure) == ((), None)
    assert (second.depends_on, second.on_failure) == ((0,), SiblingFailure.CANCEL_SIBLINGS)
    assert {each.request.deadline for each in (first, second)} == {12.5}
    assert {each.request.caller.subject for each in (first, second)} == {"did:web:toolmesh.local:users:alice"}


@pytest.mark.parametrize("number", [number for number in pb.SiblingFailure.values() if number])
def test_every_policy_is_understood(call: Call, number: int) -> None:
    message = pb.InvokeGroupRequest(calls=[pb.GroupCall(request=pb.InvokeRequest(tool="echo"))])
    message.calls[0].on_failure = number  # type: ignore[assignment]
    [only] = group_of(message, call)
    assert only.on_failure is not None
    assert f"SIBLING_FAILURE_{only.on_failure.name}" == pb.SiblingFailure.Name(number)  # type: ignore[arg-type]


def test_a_result_is_its_envelope_and_no_error() -> None:
    result = a_result()
    [outcome] = group_response_of([GroupOutcome(result, None, result.result_id, ENDED, a_tool())]).outcomes
    assert outcome.result == convert.envelope_of(result)
    assert not outcome.HasField("error")


def test_a_failure_is_an_error_and_a_result_that_explains_it() -> None:
    error = errors.sibling_failed(2, errors.execution_failed("x"))
    error.invocation_id = "inv-1"
    [outcome] = group_response_of([GroupOutcome(None, error, "res-1", ENDED, a_tool())]).outcomes
    assert outcome.error.reason == cpb.ERROR_REASON_SIBLING_CANCELED
    assert dict(outcome.error.metadata) == {"sibling": "2", "sibling_reason": "EXECUTION_FAILED"}
    result = outcome.result
    assert (result.status, result.result_id, result.invocation_id) == (epb.RESULT_STATUS_SYNTHETIC, "res-1", "inv-1")
    assert result.structured_content == b""
    assert result.provenance.tool_version == "tools/core.say/versions/1.0.0"
    assert result.create_time.ToDatetime(tzinfo=UTC) == ENDED
    for said in (result.model_facing_content, result.ui_facing_summary, result.transcript_search_text):
        assert outcome.error.code in said
        assert outcome.error.message in said


def test_a_failure_without_a_tool_has_no_provenance() -> None:
    [outcome] = group_response_of([GroupOutcome(None, errors.tool_not_found("x"), "res-1", ENDED, None)]).outcomes
    assert not outcome.result.HasField("provenance")
