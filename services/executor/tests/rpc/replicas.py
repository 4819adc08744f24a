"""Two executors that share a database, as a caller of invocations by name sees them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from toolmesh.executor.v1 import executor_service_pb2 as call_pb
from toolmesh.executor.v1 import invocation_service_pb2 as pb
from toolmesh.executor.v1 import invocation_service_pb2_grpc as rpc

from libs.common.errors import MeshError, Reason
from libs.common.ids import new_id
from libs.common.json.jsonio import dump
from libs.common.rpc.client import channel_to
from libs.common.rpc.status import from_rpc_error
from libs.common.runtime.clock import SystemClock
from libs.common.runtime.settings import Address
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.executor.config import Settings
from services.executor.tests.peers import credentials
from services.executor.wiring import compose
from tests.harness.executors.booking_executor import BookingRunner, bookings


class Replicas:
    """Two executors, as a caller sees them."""

    def __init__(self, stubs: list[Any], applications: list[Any], signer: Any, folder: Path) -> None:
        self.stubs, self.folder = stubs, folder
        self._applications = applications
        self._signer = signer
        self._metadata = (("authorization", f"Bearer {signer.mint()}"),)

    async def ask(self, where: int, method: str, request: Any, **claims: Any) -> Any:
        """Call one of them, as the usual caller or one with other claims."""
        metadata = (("authorization", f"Bearer {self._signer.mint(**claims)}"),) if claims else self._metadata
        try:
            return await getattr(self.stubs[where], method)(request, metadata=metadata, timeout=120)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error

    async def stop(self, where: int) -> None:
        """Stop one of them; what it runs is given to the other."""
        await _stop_if_running(self._applications, where)

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

    async def report(self, where: int, *, tool: str = "report_steps", **arguments: Any) -> Any:
        """Start a tool that reports."""
        call = call_pb.InvokeRequest(tool=tool, arguments=dump(arguments))
        return (await self.ask(where, "StartInvocation", pb.StartInvocationRequest(request=call))).invocation

    def stream(self, where: int) -> Any:
        """Open a stream."""
        return self.stubs[where].StreamInvocation(metadata=self._metadata)

    def watch(self, where: int, name: str, after: int = 0) -> Any:
        """Open a watch."""
        request = pb.WatchInvocationRequest(name=name, after_sequence=after)
        return self.stubs[where].WatchInvocation(request, metadata=self._metadata)


async def refusal(call: Any) -> Reason:
    """Return the reason that a call is refused for."""
    with pytest.raises(MeshError) as refused:
        await call
    return refused.value.reason


@asynccontextmanager
async def running_replicas(
    pki: Any, signer: Any, executor_settings: Callable[..., Settings], log: Log, folder: Path, **more: str
) -> AsyncIterator[Replicas]:
    """Run two executors with tools of tests, put together like real ones. `more` are settings."""
    stubs, applications = [], []
    async with AsyncExitStack() as stack:
        for number in range(2):
            settings = executor_settings(INSTANCE_ID=f"executor-{number}", CALLBACK_INTERNAL_HOSTS="127.0.0.1", **more)
            application = compose(
                settings, log, Tracing(), clock=SystemClock(), tools=bookings(), builtin_runner=BookingRunner
            )
            await application.start()
            applications.append(application)
            stack.push_async_callback(_stop_if_running, applications, number)
            address = Address("127.0.0.1", application.server.port)
            channel = await stack.enter_async_context(channel_to("executor", address, credentials(pki, "orchestrator")))
            stubs.append(rpc.InvocationServiceStub(channel))
        made = Replicas(stubs, applications, signer, folder)
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


async def _stop_if_running(applications: list[Any], where: int) -> None:
    application, applications[where] = applications[where], None
    if application is not None:
        await application.stop()
