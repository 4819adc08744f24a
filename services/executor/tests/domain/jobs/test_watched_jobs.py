"""Readers of jobs share one look at the store, however many they are and however many signals come."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from services.executor.domain.jobs.watched_jobs import WatchedJobs
from services.executor.tests.waiting import until


class Sequences:
    """A store that only knows the last sequence of each job."""

    def __init__(self, **sequences: int) -> None:
        self.known = dict(sequences)
        self.looks: list[list[str]] = []
        self.failure: MeshError | None = None

    async def sequences(self, invocation_ids: Sequence[str]) -> Mapping[str, int]:
        self.looks.append(list(invocation_ids))
        if self.failure is not None:
            raise self.failure
        return {each: self.known[each] for each in invocation_ids if each in self.known}


class Signals:
    """Signals that a test sends."""

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None

    def wake(self) -> None:
        if self._next is not None:
            self._next.set_result(None)
            self._next = None

    def next_wake(self) -> asyncio.Future[None]:
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        return self._next


def watched_over(store: Sequences, signals: Signals, **times: float) -> WatchedJobs:
    anything: Any = store
    return WatchedJobs(anything, signals, min_interval=0.0, **{"poll_seconds": 3600.0, **times})


async def test_a_reader_is_woken_by_its_own_job_only() -> None:
    store, signals = Sequences(a=1, b=1), Signals()
    watched = watched_over(store, signals)
    first, second = (asyncio.ensure_future(watched.wait_beyond(job, 1)) for job in ("a", "b"))
    await until(lambda: bool(store.looks))
    store.known["a"] = 2
    signals.wake()
    await first
    assert not second.done()
    store.known["b"] = 2
    signals.wake()
    await second


async def test_a_thousand_readers_and_signals_cost_a_few_statements() -> None:
    store, signals = Sequences(a=1), Signals()
    watched = watched_over(store, signals)
    readers = [asyncio.ensure_future(watched.wait_beyond("a", 1)) for _ in range(1000)]
    await until(lambda: bool(store.looks))
    for _ in range(1000):
        signals.wake()
    store.known["a"] = 2
    signals.wake()
    await asyncio.gather(*readers)
    assert all(look == ["a"] for look in store.looks)
    assert len(store.looks) < 10


@pytest.mark.parametrize("what", ["gone", "failing"])
async def test_a_reader_looks_by_itself_when_its_job_is_gone_or_the_store_fails(what: str) -> None:
    store = Sequences() if what == "gone" else Sequences(a=1)
    store.failure = MeshError(Reason.SERVICE_UNAVAILABLE) if what == "failing" else None
    await watched_over(store, Signals()).wait_beyond("a", 1)


async def test_a_lost_signal_only_delays() -> None:
    store = Sequences(a=1)
    reader = asyncio.ensure_future(watched_over(store, Signals(), poll_seconds=0.001).wait_beyond("a", 1))
    await until(lambda: bool(store.looks))
    store.known["a"] = 2
    await reader


async def test_a_reader_leaves_when_its_time_is_over() -> None:
    store = Sequences(a=1)
    watched = watched_over(store, Signals())
    await watched.wait_beyond("a", 1, seconds=0.0)
    assert not watched._waiting
