"""Two executors with tools of tests, put together like real ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from toolmesh.executor.v1 import invocation_service_pb2_grpc as rpc

from libs.common.errors import MeshError, Reason
from libs.common.rpc.client import channel_to
from libs.common.runtime.clock import SystemClock
from libs.common.runtime.settings import Address
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.executor.config import Settings
from services.executor.tests.peers import credentials
from services.executor.tests.rpc.replicas import Replicas
from services.executor.wiring import compose
from tests.harness import booking_executor
from tests.harness.booking_executor import BookingRunner, bookings


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
