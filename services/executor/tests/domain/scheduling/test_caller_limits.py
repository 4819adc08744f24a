"""Calls under way are counted by subject and tenant, and a group as its calls."""

from __future__ import annotations

import pytest

from libs.common.errors import MeshError, Reason
from services.executor.domain.model import Caller, Request
from services.executor.domain.scheduling.caller_limits import CallerBounds, CallerLimits, LimitedCalls
from services.executor.domain.scheduling.refused_calls import RefusedCalls
from services.executor.tests.samples import a_caller, a_request

ADA, BOB = (a_caller(tenant="acme", subject=subject) for subject in ("ada", "bob"))
EVE = a_caller(tenant="umbrella", subject="ada")


def refused(limits: CallerLimits, caller: Caller, calls: int = 1) -> str:
    with pytest.raises(MeshError) as caught, limits.hold(caller, calls):
        raise AssertionError
    assert caught.value.reason is Reason.RATE_LIMITED
    assert caught.value.retry_after is not None
    return caught.value.metadata["limit"]


def test_a_subject_has_no_more_calls_than_its_bound_and_others_are_not_affected() -> None:
    limits = CallerLimits(CallerBounds(subject=2, tenant=3))
    with limits.hold(ADA, 2):
        assert refused(limits, ADA) == "subject"
        with limits.hold(BOB, 1), limits.hold(EVE, 2):
            assert refused(limits, BOB) == "tenant"
    assert not limits._counts


def test_a_group_counts_as_its_calls() -> None:
    limits = CallerLimits(CallerBounds(subject=64))
    with limits.hold(ADA, 1):
        assert refused(limits, ADA, 64) == "subject"
        with limits.hold(ADA, 63):
            assert refused(limits, ADA) == "subject"


async def test_a_use_case_beyond_the_limit_does_not_begin_and_is_recorded() -> None:
    begun: list[int] = []
    recorded: list[int] = []

    async def execute(asked: int) -> int:
        begun.append(asked)
        return asked

    async def record(request: Request, error: MeshError, calls: int = 1) -> MeshError:
        recorded.append(calls)
        return error

    request, refused_calls = a_request(caller=ADA), RefusedCalls(record)
    limits = CallerLimits(CallerBounds(subject=2))
    limited = LimitedCalls(limits, execute, lambda asked: [request] * asked, refused_calls)
    assert await limited.execute(2) == 2
    with pytest.raises(MeshError) as caught:
        await limited.execute(3)
    assert caught.value.reason is Reason.RATE_LIMITED
    assert (begun, recorded) == ([2], [3])
    await refused_calls.stop()
    assert recorded == [3]
