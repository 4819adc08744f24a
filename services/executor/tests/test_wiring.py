"""The whole process, put together: real mutual TLS, real tokens, a real database, and peers that can be watched."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest
from toolmesh.audit.v1 import audit_record_pb2 as rpb
from toolmesh.executor.v1 import executor_service_pb2 as pb
from toolmesh.executor.v1 import executor_service_pb2_grpc as rpc
from toolmesh.executor.v1 import result_envelope_pb2 as epb

from libs.common.errors import MeshError, Reason
from libs.common.json.jsonio import dump, parse
from libs.common.rpc.client import channel_to
from libs.common.rpc.status import from_rpc_error
from libs.common.runtime.settings import Address
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.executor.config import Settings
from services.executor.tests.peers import AuditPeer, AuthzPeer, credentials
from services.executor.tests.waiting import until
from services.executor.wiring import build

TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
async def executor(
    pki: Any,
    signer: Any,
    executor_settings: Callable[..., Settings],
    audit: AuditPeer,
    quiet: Log,
) -> AsyncIterator[Any]:
    settings = executor_settings(INSTANCE_ID="executor-test", AUDIT_WAIT_SECONDS="0.6")
    application = await build(settings, quiet, Tracing())
    await application.start()
    address = Address("127.0.0.1", application.server.port)
    async with channel_to("executor", address, credentials(pki, "gateway")) as channel:
        stub = rpc.ExecutorServiceStub(channel)
        token = signer.mint()

        async def invoke(tool: str, arguments: bytes = b"{}", **fields: Any) -> epb.ResultEnvelope:
            timeout = fields.pop("timeout", 5.0)
            metadata = (
                ("authorization", f"Bearer {fields.pop('token', token)}"),
                ("traceparent", f"00-{TRACE}-b7ad6b7169203331-00"),
            )
            request = pb.InvokeRequest(tool=tool, arguments=arguments, **fields)
            return (await stub.Invoke(request, metadata=metadata, timeout=timeout)).result

        # The built-in tools are registered in the background, so the first calls may come too early.
        async with asyncio.timeout(20):
            while not await _answers(invoke, "core.arithmetic"):
                continue
        audit.records.clear()
        yield SimpleNamespace(invoke=invoke, application=application)
    await application.stop()


async def _answers(invoke: Any, tool: str) -> bool:
    try:
        await invoke(tool, b'{"expression":"1"}')
    except grpc.aio.AioRpcError:
        return False
    return True


async def refusal(call: Any) -> MeshError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value)


async def test_a_call_comes_back_with_its_provenance_and_both_records(executor: Any, audit: AuditPeer) -> None:
    result = await executor.invoke("echo", b'{"text":"hi","value":9007199254740993}', task_id="task-1")
    assert parse(result.structured_content) == {"text": "hi", "value": 9007199254740993}
    assert result.status == epb.RESULT_STATUS_SUCCEEDED
    assert result.provenance.tool_version == "tools/core.echo/versions/1.0.0"
    assert result.provenance.source == epb.RESULT_SOURCE_COMPUTED
    assert result.trace_id == TRACE
    assert [phase.phase for phase in result.execution.phases] == [
        "request",
        "validate",
        "authorize",
        "execute",
        "verify",
        "return",
    ]
    decided, ended = audit.about(result.invocation_id)
    assert list(result.evidence_refs) == [f"records/{decided.record_id}", f"records/{ended.record_id}"]
    assert decided.event_class == rpb.EVENT_CLASS_PERMISSION_DECIDED
    assert decided.authorization == rpb.AUTHORIZATION_OUTCOME_ALLOW
    assert (decided.previous_state, decided.state) == ("arguments_ready", "approved")
    assert ended.event_class == rpb.EVENT_CLASS_INVOCATION_SUCCEEDED
    assert ended.follows == decided.record_id
    assert (ended.previous_state, ended.state) == ("running", "succeeded")
    assert parse(ended.result_summary) == parse(result.structured_content)
    assert ended.caller.subject == "did:web:toolmesh.local:users:alice"
    assert (ended.caller.peer, ended.executor_id, ended.task_id) == ("gateway", "executor-test", "task-1")
    assert (ended.sandbox, ended.attempt) == ("in_process", 1)


async def test_what_a_caller_gives_away_never_reaches_the_log(executor: Any, audit: AuditPeer) -> None:
    """Planted in arguments and so in results, in the name of a tool that is none, and in every name that a caller may
    give.
    """
    token, card, mail = "ghp" + "_" + "A1b2" * 9, "4111 1111 1111 1111", "alice@example.com"
    names = {"idempotency_key": token, "task_id": f"for {mail}", "native_call_id": token, "session_id": token}
    text = f"{card} of {mail}, password=hunter22"
    result = await executor.invoke("echo", dump({"text": text, "value": {"apiKey": "s3cr3t-value"}}), **names)
    assert parse(result.structured_content) == {"text": text, "value": {"apiKey": "s3cr3t-value"}}
    await refusal(executor.invoke(token))
    await refusal(executor.invoke("echo", dump({"text": 1, "password": "hunter22"})))
    assert len(audit.records) == 4
    seen = b"".join(record.SerializeToString() for record in audit.records)
    assert [secret for secret in (token, card, mail, "hunter22", "s3cr3t-value") if secret.encode() in seen] == []
    assert b"[redacted:payment_card] of [redacted:email], password=[redacted:password]" in seen


async def test_an_outcome_that_the_log_does_not_confirm_is_kept_and_the_result_answered(
    executor: Any, audit: AuditPeer
) -> None:
    audit.withholds = lambda records: any(record.follows for record in records)
    result = await executor.invoke("echo", b'{"text":"a"}')
    audit.withholds = lambda records: False
    await until(lambda: len(audit.about(result.invocation_id)) == 2)
    assert [f"records/{record.record_id}" for record in audit.about(result.invocation_id)] == list(result.evidence_refs)


async def test_the_second_call_asks_policy_nothing(executor: Any, authz: AuthzPeer) -> None:
    await executor.invoke("echo", b'{"text":"a"}')
    asked = len(authz.asked)
    await executor.invoke("echo", b'{"text":"b"}')
    assert len(authz.asked) == asked


async def test_policy_is_asked_with_the_callers_own_token(executor: Any, authz: AuthzPeer, signer: Any) -> None:
    token = signer.mint()
    await executor.invoke("echo", b'{"text":"a"}', token=token)
    assert authz.metadata[-1]["authorization"] == f"Bearer {token}"
    assert authz.asked[-1].tool_version == "tools/core.echo/versions/1.0.0"


async def test_a_default_is_filled_in_and_named(executor: Any) -> None:
    result = await executor.invoke("clock_now")
    assert parse(result.structured_content)["timezone"] == "UTC"  # type: ignore[call-overload, index]
    assert list(result.adjusted_arguments) == ["/timezone"]


async def test_an_unknown_tool_is_refused_and_on_record(executor: Any, audit: AuditPeer) -> None:
    error = await refusal(executor.invoke("no_such_tool"))
    assert error.reason is Reason.TOOL_NOT_FOUND
    [record] = audit.about(error.invocation_id)
    assert (record.tool_version, record.state) == ("no_such_tool", "blocked")


async def test_the_same_key_is_answered_once_computed(executor: Any, audit: AuditPeer) -> None:
    first = await executor.invoke("clock_now", idempotency_key="k1")
    second = await executor.invoke("clock_now", idempotency_key="k1")
    assert second.structured_content == first.structured_content
    assert (first.replayed, second.replayed) == (False, True)
    assert second.provenance.source == epb.RESULT_SOURCE_REPLAY
    assert [
        record.replayed for record in audit.records if record.event_class == rpb.EVENT_CLASS_INVOCATION_SUCCEEDED
    ] == [
        False,
        True,
    ]
    error = await refusal(executor.invoke("clock_now", b'{"timezone":"Europe/Vienna"}', idempotency_key="k1"))
    assert error.reason is Reason.IDEMPOTENCY_CONFLICT


async def test_without_the_logs_word_nothing_is_answered(executor: Any, audit: AuditPeer) -> None:
    audit.acknowledging.clear()
    error = await refusal(executor.invoke("echo", b'{"text":"a"}'))
    assert error.reason is Reason.AUDIT_UNAVAILABLE
    assert error.invocation_id
    audit.acknowledging.set()


async def test_a_call_that_is_canceled_by_its_caller_is_on_record(
    executor: Any, authz: AuthzPeer, audit: AuditPeer, signer: Any
) -> None:
    authz.answering.clear()
    authz.arrived.clear()
    audit.arrived.clear()
    call = asyncio.ensure_future(executor.invoke("echo", b'{"text":"a"}', token=signer.mint()))
    await authz.arrived.wait()
    call.cancel()
    await asyncio.wait_for(audit.arrived.wait(), 10)
    authz.answering.set()
    assert audit.records[-1].event_class == rpb.EVENT_CLASS_INVOCATION_CANCELED


async def test_a_call_whose_time_is_over_is_on_record_and_told_its_invocation(
    executor: Any, authz: AuthzPeer, audit: AuditPeer, signer: Any
) -> None:
    authz.answering.clear()
    error = await refusal(executor.invoke("echo", b'{"text":"a"}', token=signer.mint(), timeout=2.0))
    authz.answering.set()
    assert error.reason is Reason.DEADLINE_EXCEEDED
    [record] = audit.about(error.invocation_id)
    assert (record.state, record.status) == ("timed_out", rpb.RECORD_STATUS_TIMEOUT)


async def test_a_peer_that_may_not_call_is_refused(executor: Any, pki: Any, signer: Any) -> None:
    address = Address("127.0.0.1", executor.application.server.port)
    async with channel_to("executor", address, credentials(pki, "operator")) as channel:
        metadata = (("authorization", f"Bearer {signer.mint()}"),)
        call = rpc.ExecutorServiceStub(channel).Invoke(pb.InvokeRequest(tool="echo"), metadata=metadata)
        assert (await refusal(call)).reason is Reason.PEER_NOT_ALLOWED
