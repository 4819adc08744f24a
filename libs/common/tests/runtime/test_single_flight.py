"""SingleFlight runs one computation per key, whichever callers come and go."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar, copy_context

import pytest

from libs.common.runtime.single_flight import SingleFlight


class Computation:
    """Counts its runs and ends when it is released."""

    def __init__(self, error: Exception | None = None) -> None:
        self.runs, self.started, self.released, self._error = 0, asyncio.Event(), asyncio.Event(), error

    async def run(self) -> int:
        self.runs += 1
        self.started.set()
        await self.released.wait()
        if self._error is not None:
            raise self._error
        return self.runs


async def test_concurrent_callers_share_one_run() -> None:
    flights: SingleFlight[str, int] = SingleFlight()
    work = Computation()
    callers = [asyncio.create_task(flights.run("key", work.run)) for _ in range(5)]
    await work.started.wait()
    work.released.set()
    assert await asyncio.gather(*callers) == [1] * 5
    assert await flights.run("key", work.run) == 2


async def test_a_canceled_caller_does_not_stop_the_others() -> None:
    flights: SingleFlight[str, int] = SingleFlight()
    work = Computation()
    first = asyncio.create_task(flights.run("key", work.run))
    await work.started.wait()
    second = asyncio.create_task(flights.run("key", work.run))
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    work.released.set()
    assert await second == 1


async def test_every_caller_gets_the_failure_and_the_next_one_starts_again() -> None:
    flights: SingleFlight[str, int] = SingleFlight()
    work = Computation(ValueError())
    callers = [asyncio.create_task(flights.run("key", work.run)) for _ in range(2)]
    await work.started.wait()
    work.released.set()
    outcomes = await asyncio.gather(*callers, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ValueError, ValueError]
    with pytest.raises(ValueError):
        await flights.run("key", work.run)
    assert work.runs == 2


async def test_cancel_ends_what_runs() -> None:
    flights: SingleFlight[str, int] = SingleFlight()
    work = Computation()
    caller = asyncio.create_task(flights.run("key", work.run))
    await work.started.wait()
    await flights.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller


async def test_a_computation_runs_in_the_given_context() -> None:
    caller = ContextVar("caller", default="none")
    flights: SingleFlight[str, str] = SingleFlight()

    async def read() -> str:
        return caller.get()

    caller.set("alice")
    assert await flights.run("empty", read) == "none"
    assert await flights.run("copied", read, context=copy_context()) == "alice"
