"""Services that limit our rate: what they say holds back the calls of the tenant that it was said to."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from libs.common.errors import Reason
from services.executor.tests.adapters.runners.http.services import MemorySecrets, Service, answer
from services.executor.tests.adapters.runners.http.test_runner import Caller


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with Service().listening() as listening:
        yield listening


@pytest.fixture
async def caller(service: Service) -> AsyncIterator[Caller]:
    caller = Caller(service, MemorySecrets())
    yield caller
    await caller.runner.close()


@pytest.mark.parametrize(
    ("status", "header", "seconds"),
    [
        ("429 Slow Down", "retry-after: 40", 40.0),
        ("429 Slow Down", 'ratelimit: "default";r=0;t=50', 50.0),
        ("200 OK", 'ratelimit: "default";r=0;t=60', 60.0),
        ("200 OK", "x-ratelimit-remaining: 0\r\nx-ratelimit-reset: 70", 70.0),
    ],
)
async def test_the_tenant_waits_and_others_do_not(
    caller: Caller, service: Service, status: str, header: str, seconds: float
) -> None:
    service.replies = [answer(b"{}", status, "application/json", header)]
    if status.startswith("429"):
        assert (await caller.failure(caller.tool(), tenant="loud")).retry_after == seconds
    else:
        await caller.run(caller.tool(), tenant="loud")
    sent = len(service.requests)
    refused = await caller.failure(caller.tool(), tenant="loud")
    assert (refused.reason, refused.retry_after) == (Reason.EXTERNAL_RATE_LIMITED, seconds)
    assert refused.metadata["effect"] == "none"
    assert len(service.requests) == sent
    service.replies = [answer(b"{}")]
    await caller.run(caller.tool(), tenant="quiet")
    assert len(service.requests) == sent + 1


@pytest.mark.parametrize("header", ["retry-after: 0", "x-ratelimit-remaining: 3", "retry-after: soon"])
async def test_a_limit_without_a_time_holds_nothing_back(caller: Caller, service: Service, header: str) -> None:
    service.replies = [answer(b"{}", "429 Slow Down", "application/json", header)]
    for _ in range(2):
        await caller.failure(caller.tool())
    assert len(service.requests) == 2
