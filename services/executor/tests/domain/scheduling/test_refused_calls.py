"""Refused calls are on record: the first at once, a flood of them as one record per interval."""

from __future__ import annotations

import asyncio

from libs.common.errors import MeshError, Reason
from services.executor.domain import errors
from services.executor.domain.model import Request
from services.executor.domain.scheduling.refused_calls import RefusedCalls
from services.executor.tests.samples import a_caller, a_request

FLOOD = 1000


class Log:
    """Keeps what would be recorded."""

    def __init__(self) -> None:
        self.records: list[tuple[str, int]] = []
        self.written = asyncio.Event()

    async def record(self, request: Request, error: MeshError, calls: int = 1) -> MeshError:
        assert error.reason is Reason.RATE_LIMITED
        self.records.append((request.caller.subject, calls))
        self.written.set()
        return error


def of(subject: str, tenant: str = "acme") -> Request:
    return a_request(caller=a_caller(tenant=tenant, subject=subject))


async def test_the_first_is_recorded_at_once_and_the_rest_together_with_their_number() -> None:
    log = Log()
    refused = RefusedCalls(log.record, interval=3600)
    for _ in range(FLOOD):
        await refused.refuse(of("ada"), errors.too_many_calls("subject", 1), 2)
    await refused.refuse(of("bob"), errors.too_many_calls("subject", 1))
    assert log.records == [("ada", 2), ("bob", 1)]
    await refused.stop()
    assert log.records == [("ada", 2), ("bob", 1), ("ada", 2 * (FLOOD - 1))]


async def test_subjects_of_a_tenant_beyond_its_own_limit_share_a_record() -> None:
    log = Log()
    refused = RefusedCalls(log.record, interval=3600)
    for number in range(FLOOD):
        await refused.refuse(of(f"s{number}"), errors.too_many_calls("tenant", 1))
    await refused.refuse(of("eve", "umbrella"), errors.too_many_calls("tenant", 1))
    await refused.stop()
    assert [calls for _, calls in log.records] == [1, 1, FLOOD - 1]


async def test_each_interval_with_refused_calls_has_a_record() -> None:
    log = Log()
    refused = RefusedCalls(log.record, interval=0.001)
    for _ in range(3):
        log.written.clear()
        await refused.refuse(of("ada"), errors.too_many_calls("subject", 1))
        await log.written.wait()
    await refused.stop()
    assert sum(calls for _, calls in log.records) == 3
