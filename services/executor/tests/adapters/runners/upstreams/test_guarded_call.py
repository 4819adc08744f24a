"""Calls behind the circuit of their server: what passes, and what is reported."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from libs.common.errors import MeshError, Reason
from services.executor.adapters.runners.upstreams.guarded_call import CallGuard, party_of
from services.executor.domain.resilience.circuit import CallOutcome, CircuitConfig
from services.executor.tests.adapters.runners.http.services import OwnCircuits
from services.executor.tests.adapters.runners.upstreams.test_grpc import Recorded
from services.executor.tests.packing import work
from services.executor.tests.samples import a_tool

TOOL = a_tool(qualified="shop.order")


async def call(circuits: Any, error: BaseException | None = None, *, tenant: str = "acme", seconds: float = 1e6) -> str:
    async def send() -> str:
        if error is not None:
            raise error
        return "sent"

    guard = CallGuard(circuits, TOOL, replace(work(), tenant=tenant), "shop:443")
    return await guard.run(send, fair=guard.is_fair(seconds))


@pytest.mark.parametrize(
    ("reason", "seconds", "outcome"),
    [
        (Reason.EXTERNAL_UNAVAILABLE, 1e6, CallOutcome.FAILURE),
        (Reason.RESULT_INVALID, 1e6, CallOutcome.FAILURE),
        (Reason.EXTERNAL_TIMEOUT, 1e6, CallOutcome.FAILURE),
        # The caller left less time than the tool declares.
        (Reason.EXTERNAL_TIMEOUT, 0.001, CallOutcome.NONE),
        (Reason.EXTERNAL_RATE_LIMITED, 1e6, CallOutcome.NONE),
        (Reason.INVOCATION_CANCELED, 1e6, CallOutcome.NONE),
        (Reason.SANDBOX_NOT_READY, 1e6, CallOutcome.NONE),
        (Reason.EXECUTION_FAILED, 1e6, CallOutcome.SUCCESS),
    ],
)
async def test_a_failure_says_what_it_means_for_the_server(
    reason: Reason, seconds: float, outcome: CallOutcome
) -> None:
    circuits = Recorded()
    with pytest.raises(MeshError):
        await call(circuits, MeshError(reason), seconds=seconds)
    assert circuits.outcomes == [outcome]


async def test_a_success_is_one_and_a_canceled_call_is_abandoned() -> None:
    circuits = Recorded()
    assert await call(circuits) == "sent"
    with pytest.raises(asyncio.CancelledError):
        await call(circuits, asyncio.CancelledError())
    assert (circuits.outcomes, circuits.abandoned) == ([CallOutcome.SUCCESS], 1)


@pytest.mark.parametrize(
    ("slow_seconds", "taken", "outcome"),
    [
        (2.0, 2.5, CallOutcome.SLOW),
        (2.0, 2.0, CallOutcome.SUCCESS),
        (None, 1e6, CallOutcome.SUCCESS),
        # All of a call's time, where the runner does not measure the server.
        (0.0, None, CallOutcome.SLOW),
        (1e6, None, CallOutcome.SUCCESS),
    ],
)
async def test_a_success_is_slow_by_the_time_of_its_server(
    slow_seconds: float | None, taken: float | None, outcome: CallOutcome
) -> None:
    circuits = Recorded()
    tool = a_tool(qualified="shop.order", circuit=CircuitConfig(slow_seconds=slow_seconds))

    async def send() -> str:
        await asyncio.sleep(0)
        return "sent"

    guard = CallGuard(circuits, tool, work(), "shop:443")
    assert await guard.run(send, server_seconds=None if taken is None else lambda: taken) == "sent"
    assert circuits.outcomes == [outcome]


async def test_a_limited_rate_holds_back_the_tenant_alone() -> None:
    circuits = OwnCircuits()
    with pytest.raises(MeshError):
        await call(circuits, MeshError(Reason.EXTERNAL_RATE_LIMITED, retry_after=9.0))
    with pytest.raises(MeshError) as caught:
        await call(circuits)
    assert (caught.value.reason, caught.value.retry_after) == (Reason.EXTERNAL_RATE_LIMITED, 9.0)
    assert await call(circuits, tenant="other") == "sent"


def test_a_subject_without_a_tenant_is_a_party_of_its_own() -> None:
    alone = replace(work(), tenant="", subject="acme")
    assert party_of(alone) != party_of(replace(work(), tenant="acme"))
