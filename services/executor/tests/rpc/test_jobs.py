"""Invocations by name on two executors that share a database, put together like real ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from toolmesh.executor.v1 import executor_service_pb2 as call_pb
from toolmesh.executor.v1 import invocation_pb2 as ipb
from toolmesh.executor.v1 import invocation_service_pb2 as pb
from toolmesh.executor.v1 import invocation_service_pb2_grpc as rpc

from libs.common.errors import MeshError, Reason
from libs.common.ids import new_id
from libs.common.rpc.client import channel_to
from libs.common.rpc.status import from_envelope, from_rpc_error
from libs.common.runtime.clock import SystemClock
from libs.common.runtime.settings import Address
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.executor.config import Settings
from services.executor.tests.peers import AuditPeer, credentials
from services.executor.wiring import compose
from tests.harness import booking_executor
from tests.harness.booking_executor import BookingRunner, bookings, entries

SUCCEEDED, CANCELED = ipb.INVOCATION_STATE_SUCCEEDED, ipb.INVOCATION_STATE_CANCELED
RUNNING = ipb.INVOCATION_STATE_RUNNING


class Replicas:
    """Two executors, as a caller sees them."""

    def __init__(self, stubs: list[Any], signer: Any, folder: Path) -> None:
        self.stubs, self.folder = stubs, folder
        self._signer = signer
        self._metadata = (("authorization", f"Bearer {signer.mint()}"),)

    async def ask(self, where: int, method: str, request: Any, **claims: Any) -> Any:
        """Call one of them, as the usual caller or one with other claims."""
        metadata = (("authorization", f"Bearer {self._signer.mint(**claims)}"),) if claims else self._metadata
        try:
            return await getattr(self.stubs[where], method)(request, metadata=metadata, timeout=120)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error

    async def start(self, where: int, takes_ms: int = 0, *, key: str = "", tool: str = "book_once") -> Any:
        """Start a booking."""
        arguments = b'{"takes_ms":%d}' % takes_ms
        call = call_pb.InvokeRequest(tool=tool, arguments=arguments, idempotency_key=key or new_id())
        return (await self.ask(where, "StartInvocation", pb.StartInvocationRequest(request=call))).invocation

    async def ended(self, where: int, name: str) -> Any:
        """Return an invocation once it has ended."""
        while True:
            found = (await self.ask(where, "WaitInvocation", pb.WaitInvocationRequest(name=name))).invocation
            if found.HasField("end_time"):
                return found

    def watch(self, where: int, name: str, after: int = 0) -> Any:
        """Open a watch."""
        request = pb.WatchInvocationRequest(name=name, after_sequence=after)
        return self.stubs[where].WatchInvocation(request, metadata=self._metadata)


@pytest.fixture
async def replicas(
    pki: Any,
    signer: Any,
    executor_settings: Callable[..., Settings],
    quiet: Log,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Replicas]:
    monkeypatch.setattr(booking_executor, "_FAULTS", tmp_path)
    stubs = []
    async with AsyncExitStack() as stack:
        for number in range(2):
            settings = executor_settings(INSTANCE_ID=f"executor-{number}")
            application = compose(
                settings, quiet, Tracing(), clock=SystemClock(), tools=bookings(), builtin_runner=BookingRunner
            )
            await application.start()
            stack.push_async_callback(application.stop)
            address = Address("127.0.0.1", application.server.port)
            channel = await stack.enter_async_context(channel_to("executor", address, credentials(pki, "orchestrator")))
            stubs.append(rpc.InvocationServiceStub(channel))
        made = Replicas(stubs, signer, tmp_path)
        async with asyncio.timeout(60):
            for where in range(2):
                while True:
                    try:
                        await made.start(where)
                        break
                    except MeshError as error:
                        # The tools arrive in the background.
                        if error.reason not in (Reason.TOOL_NOT_FOUND, Reason.SERVICE_UNAVAILABLE):
                            raise
        yield made


async def refusal(call: Any) -> Reason:
    with pytest.raises(MeshError) as refused:
        await call
    return refused.value.reason


async def test_an_invocation_is_started_awaited_watched_and_listed_at_any_replica(
    replicas: Replicas, audit: AuditPeer
) -> None:
    started = await replicas.start(0, 50, key="k")
    ended = await replicas.ended(1, started.name)
    assert ended.state == SUCCEEDED
    assert ended.result.invocation_id == started.invocation_id
    assert [key for key, _, _ in entries(replicas.folder)].count("k") == 1
    events = [event async for event in replicas.watch(1, started.name)]
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert [event.transition.state for event in events[-2:-1]] == [RUNNING]
    assert events[-1].ended.result == ended.result
    rest = [event async for event in replicas.watch(0, started.name, after=events[1].sequence)]
    assert [event.sequence for event in rest] == [event.sequence for event in events[2:]]
    # The same key is the same invocation, wherever it is asked for.
    again = await replicas.start(1, 50, key="k")
    assert again.name == started.name
    assert await refusal(replicas.start(1, 51, key="k")) is Reason.IDEMPOTENCY_CONFLICT
    listed = await replicas.ask(1, "ListInvocations", pb.ListInvocationsRequest(states=[SUCCEEDED]))
    assert started.name in [each.name for each in listed.invocations]


async def test_a_watch_that_waits_sees_the_end_and_a_cancellation_at_another_replica_is_carried_out(
    replicas: Replicas,
) -> None:
    started = await replicas.start(0, 60_000)
    watch = replicas.watch(1, started.name)
    async for event in watch:
        if event.transition.state == RUNNING:
            break
    await replicas.ask(1, "CancelInvocation", pb.CancelInvocationRequest(name=started.name))
    last = [event async for event in watch][-1]
    assert last.ended.state == CANCELED
    assert from_envelope(last.ended.error).reason is Reason.INVOCATION_CANCELED
    # Canceling it again changes nothing.
    answer = await replicas.ask(0, "CancelInvocation", pb.CancelInvocationRequest(name=started.name))
    assert answer.invocation.state == CANCELED


async def test_others_find_nothing_of_an_invocation(replicas: Replicas) -> None:
    started = await replicas.start(0)
    for method, request in (
        ("GetInvocation", pb.GetInvocationRequest(name=started.name)),
        ("WaitInvocation", pb.WaitInvocationRequest(name=started.name)),
        ("CancelInvocation", pb.CancelInvocationRequest(name=started.name)),
    ):
        asked = replicas.ask(0, method, request, sub="did:web:toolmesh.local:users:mallory")
        assert await refusal(asked) is Reason.INVOCATION_NOT_FOUND
    listed = await replicas.ask(
        0, "ListInvocations", pb.ListInvocationsRequest(), sub="did:web:toolmesh.local:users:mallory"
    )
    assert not listed.invocations


async def test_what_invoke_refuses_is_not_started(replicas: Replicas) -> None:
    call = call_pb.InvokeRequest(tool="book_once", arguments=b'{"takes_ms":-1}', idempotency_key="k")
    assert (
        await refusal(replicas.ask(0, "StartInvocation", pb.StartInvocationRequest(request=call)))
        is Reason.ARGUMENTS_INVALID
    )
    call = call_pb.InvokeRequest(tool="core.unheard_of")
    assert (
        await refusal(replicas.ask(0, "StartInvocation", pb.StartInvocationRequest(request=call)))
        is Reason.TOOL_NOT_FOUND
    )
