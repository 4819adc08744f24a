"""Two executors on one database, wired like real ones: whichever is asked, however often, the effect happens
once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from toolmesh.executor.v1 import executor_service_pb2 as pb
from toolmesh.executor.v1 import executor_service_pb2_grpc as rpc

from libs.common.errors import MeshError, Reason
from libs.common.rpc.client import channel_to
from libs.common.rpc.status import from_rpc_error
from libs.common.runtime.clock import SystemClock
from libs.common.runtime.settings import Address
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.executor.config import Settings
from services.executor.tests.peers import credentials
from services.executor.wiring import compose
from tests.harness.executors import booking_executor
from tests.harness.executors.booking_executor import BookingRunner, bookings, entries

RULES = ("book_again", "book_asked", "book_once")


class Replicas:
    """Both executors, as their callers see them."""

    def __init__(self, stubs: list[Any], token: str, folder: Path) -> None:
        self._stubs, self._metadata, self._folder = stubs, (("authorization", f"Bearer {token}"),), folder

    async def book(self, where: int, tool: str, key: str, takes_ms: int = 0) -> Any:
        """Book at one of them."""
        arguments = b'{"takes_ms":%d}' % takes_ms
        request = pb.InvokeRequest(tool=tool, arguments=arguments, idempotency_key=key, session_id="s")
        call = self._stubs[where % len(self._stubs)].Invoke(request, metadata=self._metadata, timeout=60)
        return (await call).result

    async def know(self, tool: str) -> bool:
        """Say whether both know a tool: they learn of it in the background."""
        try:
            for where in range(len(self._stubs)):
                await self.book(where, tool, f"known-{tool}-{where}")
        except grpc.aio.AioRpcError:
            return False
        return True

    def effects(self, key: str) -> int:
        """How often the effect behind a key happened."""
        return Counter(key for key, _, _ in entries(self._folder))[key] + (self._folder / f"entry-{key}").exists()


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
            stubs.append(rpc.ExecutorServiceStub(channel))
        made = Replicas(stubs, signer.mint(), tmp_path)
        for tool in RULES:
            async with asyncio.timeout(20):
                while not await made.know(tool):
                    continue
        yield made


@pytest.mark.parametrize("tool", RULES)
async def test_two_hundred_calls_have_one_effect_and_equal_results(replicas: Replicas, tool: str) -> None:
    results = await asyncio.gather(*(replicas.book(number, tool, "k", 100) for number in range(200)))
    assert replicas.effects("k") == 1
    assert len({result.structured_content for result in results}) == 1
    assert Counter(result.replayed for result in results) == {True: 199, False: 1}


async def test_other_arguments_under_the_same_key_conflict_at_the_other_replica(replicas: Replicas) -> None:
    await replicas.book(0, "book_once", "k")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await replicas.book(1, "book_once", "k", 1)
    error = from_rpc_error(caught.value)
    assert isinstance(error, MeshError)
    assert error.reason is Reason.IDEMPOTENCY_CONFLICT
    assert replicas.effects("k") == 1
