"""Groups of calls: everything that was asked for is sent, and each call's failure is its own; by both clients alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest
from toolmesh.executor.v1 import executor_service_pb2 as pb
from toolmesh.executor.v1 import result_envelope_pb2 as epb
from toolmesh_sdk import GroupCall, InvalidInputError, Reason, ToolmeshError, derive_idempotency_key

from libs.common.errors import MeshError, Violation
from libs.common.rpc.status import envelope as error_envelope
from sdk.tests.executor_samples import envelope

FAILED = MeshError(Reason.ARGUMENTS_INVALID, violations=[Violation("/a", "type", "no")], invocation_id="inv-2")
DONE = pb.InvokeGroupResponse(outcomes=[pb.GroupOutcome(result=envelope({"n": 1}))])


def failed_outcome() -> Any:
    said = envelope(status=epb.RESULT_STATUS_SYNTHETIC, model_facing_content="No result: it was wrong.")
    return pb.GroupOutcome(result=said, error=error_envelope(FAILED))


async def test_a_group_asks_for_everything_it_was_given(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("InvokeGroup", DONE)
    named: dict[str, Any] = {
        "version": "^1",
        "idempotency_key": "k",
        "session_id": "s",
        "task_id": "t",
        "native_call_id": "n",
        "tool_digest": "sha256:" + "0" * 64,
        "priority": 7,
        "preview_token": "p",
    }
    calls = [
        GroupCall("echo", {"text": "ü"}, **named),
        GroupCall("pay", {"cents": 5}, session_id="s", step="3", depends_on=(0,), on_failure="cancel_siblings"),
    ]
    await drive(serve(), key_secret="secret").do("call_group", calls)
    first, second = mesh.of("InvokeGroup")[0].request.calls
    assert first.request == pb.InvokeRequest(tool="echo", arguments='{"text":"ü"}'.encode(), **named)
    assert (list(first.depends_on), first.on_failure) == ([], pb.SIBLING_FAILURE_UNSPECIFIED)
    assert (list(second.depends_on), second.on_failure) == ([0], pb.SIBLING_FAILURE_CANCEL_SIBLINGS)
    assert second.request.idempotency_key == derive_idempotency_key("secret", "s", "pay", "3", {"cents": 5})


async def test_a_failure_is_an_outcome_and_takes_nothing_from_its_siblings(
    drive: Any, mesh: Any, serve: Callable[..., str]
) -> None:
    unreadable = pb.GroupOutcome(result=epb.ResultEnvelope(structured_content=b"{"))
    outcomes = [*DONE.outcomes, failed_outcome(), unreadable]
    mesh.answer("InvokeGroup", pb.InvokeGroupResponse(outcomes=outcomes))
    good, bad, odd = await drive(serve()).do("call_group", [GroupCall("a"), GroupCall("b"), GroupCall("c")])
    assert (good.result.content, good.error, good.result_or_raise()) == ({"n": 1}, None, good.result)
    assert isinstance(bad.error, InvalidInputError)
    assert (bad.result, bad.error.invocation_id, bad.error.violations[0].path) == (None, "inv-2", "/a")
    assert (bad.synthetic.status, bad.synthetic.shown.model) == ("synthetic", "No result: it was wrong.")
    with pytest.raises(InvalidInputError):
        bad.result_or_raise()
    assert (odd.result, odd.error.reason) == (None, Reason.RESULT_INVALID)


async def test_a_failure_of_the_whole_group_is_raised(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("InvokeGroup", MeshError(Reason.INVALID_REQUEST))
    with pytest.raises(InvalidInputError):
        await drive(serve()).do("call_group", [GroupCall("a", depends_on=(0,))])


@pytest.mark.parametrize(("keys", "sent"), [(("k", "l"), 2), (("k", None), 1), ((None, None), 1)])
async def test_a_lost_group_is_repeated_only_if_every_call_has_a_key(
    drive: Any, mesh: Any, serve: Callable[..., str], keys: tuple[str | None, ...], sent: int
) -> None:
    mesh.answer("InvokeGroup", grpc.StatusCode.UNAVAILABLE, DONE)
    client = drive(serve())
    calls = [GroupCall("a", idempotency_key=key) for key in keys]
    if sent == 1:
        with pytest.raises(ToolmeshError):
            await client.do("call_group", calls)
    else:
        await client.do("call_group", calls)
    assert len(mesh.of("InvokeGroup")) == sent


@pytest.mark.parametrize("call", [GroupCall("a", on_failure="explode"), GroupCall("a", step="1")])
async def test_what_cannot_be_meant_is_not_sent(
    drive: Any, mesh: Any, serve: Callable[..., str], call: GroupCall
) -> None:
    with pytest.raises(ValueError):
        await drive(serve()).do("call_group", [call])
    assert mesh.seen == []


async def test_a_group_that_no_message_holds_is_refused_before_it_is_sent(
    drive: Any, mesh: Any, serve: Callable[..., str]
) -> None:
    mesh.answer("InvokeGroup", DONE)
    calls = [GroupCall("echo", {"text": "x" * 2_500_000}, idempotency_key=str(place)) for place in range(2)]
    with pytest.raises(InvalidInputError) as caught:
        await drive(serve()).do("call_group", calls)
    assert caught.value.reason is Reason.PAYLOAD_TOO_LARGE
    assert mesh.seen == []
