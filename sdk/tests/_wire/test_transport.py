"""What travels beside every request: a deadline, a token, a trace."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest
from toolmesh.executor.v1 import executor_service_pb2
from toolmesh_sdk import AsyncClient, AuthorizationDeniedError, Reason, ToolmeshError, new_traceparent
from toolmesh_sdk._wire.trace import trace_id_of

from libs.common.errors import MeshError

DONE = executor_service_pb2.InvokeResponse()


def holding(mesh: Any) -> threading.Event:
    """Have calls wait for an answer that does not come; return what says that one is there."""
    arrived = threading.Event()

    def hold(request: Any) -> Any:
        arrived.set()
        return mesh.hold(request)

    mesh.answer("Invoke", hold)
    return arrived


async def test_the_deadline_is_always_set(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("Invoke", DONE)
    address = serve()
    await drive(address).do("call", "echo")
    await drive(address, timeout=300).do("call", "echo")
    await drive(address, timeout=300).do("call", "echo", timeout=3000)
    # Far apart, because the wire rounds a deadline and the machine takes its time.
    default, own, asked = (call.remaining for call in mesh.seen)
    assert 0 < default < 35 < own < 350 < asked < 3500


async def test_the_token_is_a_bearer_token_and_is_asked_for_at_every_attempt(
    drive: Any, mesh: Any, serve: Callable[..., str]
) -> None:
    mesh.answer("Invoke", MeshError(Reason.AUDIT_UNAVAILABLE), DONE)
    tokens = iter(["first", "second"])
    await drive(serve(), token=lambda: next(tokens)).do("call", "echo")
    assert [call.metadata["authorization"] for call in mesh.seen] == ["Bearer first", "Bearer second"]


async def test_all_attempts_of_a_call_have_one_identity_under_renewed_tokens(
    drive: Any, mesh: Any, serve: Callable[..., str]
) -> None:
    """The mesh keeps keys by tenant and subject, never by token, so the same key finds the first result."""
    mesh.answer("Invoke", MeshError(Reason.SERVICE_UNAVAILABLE), MeshError(Reason.TOKEN_EXPIRED, retryable=True), DONE)
    tokens = iter(["first", "second", "third"])
    client = drive(serve(), token=lambda: next(tokens))
    await client.do("call", "echo", {"n": 1}, idempotency_key="k", session_id="s", native_call_id="c", task_id="t")
    assert [call.metadata["authorization"][7:] for call in mesh.seen] == ["first", "second", "third"]
    requests = {call.request.SerializeToString(deterministic=True) for call in mesh.seen}
    assert len(requests) == 1
    assert mesh.seen[0].request.idempotency_key == "k"


@pytest.mark.parametrize("token", ["", None])
async def test_without_a_token_none_is_sent(
    drive: Any, mesh: Any, serve: Callable[..., str], token: str | None
) -> None:
    mesh.answer("Invoke", DONE)
    await drive(serve(), token=token).do("call", "echo")
    assert "authorization" not in mesh.seen[0].metadata


async def test_a_token_is_sent_without_the_line_break_of_its_file(
    drive: Any, mesh: Any, serve: Callable[..., str]
) -> None:
    mesh.answer("Invoke", DONE)
    await drive(serve(), token="first\n").do("call", "echo")
    assert mesh.seen[0].metadata["authorization"] == "Bearer first"


@pytest.mark.parametrize("token", ["first second", "fir\nst", "f\u00efrst", "first\0"])
async def test_a_token_that_no_header_can_hold_is_malformed_and_not_sent(
    drive: Any, mesh: Any, serve: Callable[..., str], token: str
) -> None:
    mesh.answer("Invoke", DONE)
    with pytest.raises(AuthorizationDeniedError) as caught:
        await drive(serve(), token=token).do("call", "echo")
    assert caught.value.reason is Reason.TOKEN_MALFORMED
    assert mesh.seen == []


async def test_every_call_begins_a_trace_of_its_own(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("Invoke", DONE)
    client = drive(serve())
    await client.do("call", "echo")
    await client.do("call", "echo")
    first, second = (call.metadata["traceparent"] for call in mesh.seen)
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-02", first)
    assert trace_id_of(first) != trace_id_of(second)


async def test_a_given_trace_is_continued(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("Invoke", DONE)
    given, own = new_traceparent("01"), new_traceparent()
    client = drive(serve(), traceparent=lambda: own)
    await client.do("call", "echo", traceparent=given)
    await client.do("call", "echo")
    assert [call.metadata["traceparent"] for call in mesh.seen] == [given, own]


async def test_a_closed_client_makes_no_call(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("Invoke", DONE)
    client = drive(serve())
    await client.do("call", "echo")
    await client.close()
    with pytest.raises((ValueError, grpc.aio.UsageError)):
        await client.do("call", "echo")
    assert len(mesh.seen) == 1


async def test_a_call_under_way_fails_when_its_client_is_closed(
    drive: Any, mesh: Any, serve: Callable[..., str]
) -> None:
    arrived = holding(mesh)
    client = drive(serve())
    call = asyncio.create_task(client.do("call", "echo"))
    assert await asyncio.to_thread(arrived.wait, 30)
    await client.close()
    # An asyncio task that merely counted as canceled would end its group without a word.
    with pytest.raises(ToolmeshError) as caught:
        await call
    assert (caught.value.reason, caught.value.answered) == (Reason.CANCELED, False)


async def test_a_task_that_is_canceled_stays_canceled(mesh: Any, serve: Callable[..., str]) -> None:
    arrived = holding(mesh)
    async with AsyncClient(serve()) as client:
        call = asyncio.create_task(client.call("echo"))
        assert await asyncio.to_thread(arrived.wait, 30)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
