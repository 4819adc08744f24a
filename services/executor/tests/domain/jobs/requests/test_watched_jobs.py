"""Readers of jobs share their looks at the store, however many they are and however many signals come."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from services.executor.domain.jobs.event import JobEvent
from services.executor.domain.jobs.requests.watched_jobs import WatchedJobs
from services.executor.domain.states import State
from services.executor.tests.waiting import until


class Events:
    """A store of jobs that have so many events each."""

    def __init__(self, **sequences: int) -> None:
        self.known = dict(sequences)
        self.ended: set[str] = set()
        self.looks: list[list[str]] = []
        self.reads: list[dict[str, int]] = []
        self.failure: MeshError | None = None

    async def progress(self, invocation_ids: Sequence[str]) -> Mapping[str, tuple[int, bool]]:
        self.looks.append(list(invocation_ids))
        if self.failure is not None:
            raise self.failure
        return {each: (self.known[each], each in self.ended) for each in invocation_ids if each in self.known}

    async def events_of(self, readers: Mapping[str, int], limit: int) -> Mapping[str, Sequence[JobEvent]]:
        self.reads.append(dict(readers))
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        return {
            job: [JobEvent(n, moment, State.RUNNING) for n in range(after + 1, self.known[job] + 1)][:limit]
            for job, after in readers.items()
        }


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


def watched_over(store: Events, signals: Signals, **times: float) -> WatchedJobs:
    anything: Any = store
    return WatchedJobs(anything, signals, min_interval=0.0, **{"poll_seconds": 3600.0, **times})


def numbers(events: Sequence[JobEvent] | None) -> list[int]:
    assert events is not None
    return [event.sequence for event in events]


async def test_a_reader_gets_the_events_of_its_own_job_only() -> None:
    store, signals = Events(a=1, b=1), Signals()
    watched = watched_over(store, signals)
    first, second = (asyncio.ensure_future(watched.next_events(job, 1, 3600)) for job in ("a", "b"))
    await until(lambda: bool(store.looks))
    store.known["a"] = 3
    signals.wake()
    assert numbers(await first) == [2, 3]
    assert not second.done()
    store.known["b"] = 2
    signals.wake()
    assert numbers(await second) == [2]


async def test_a_thousand_readers_and_signals_cost_a_few_statements() -> None:
    store, signals = Events(a=1), Signals()
    watched = watched_over(store, signals)
    readers = [asyncio.ensure_future(watched.next_events("a", 1, 3600)) for _ in range(1000)]
    await until(lambda: bool(store.looks))
    for _ in range(1000):
        signals.wake()
    store.known["a"] = 2
    signals.wake()
    assert all(numbers(events) == [2] for events in await asyncio.gather(*readers))
    assert all(look == ["a"] for look in store.looks)
    assert len(store.looks) < 10
    assert store.reads == [{"a": 1}]


async def test_readers_of_one_job_that_have_seen_different_events_share_a_read() -> None:
    store = Events(a=5)
    watched = watched_over(store, Signals())
    behind, ahead = await asyncio.gather(watched.next_events("a", 2, 3600), watched.next_events("a", 4, 3600))
    assert (numbers(behind), numbers(ahead)) == ([3, 4, 5], [5])


async def test_a_wait_for_the_end_is_not_woken_by_other_events() -> None:
    store, signals = Events(a=1), Signals()
    watched = watched_over(store, signals)
    waiting = asyncio.ensure_future(watched.wait_ended("a", 3600))
    await until(lambda: bool(store.looks))
    store.known["a"] = 2
    signals.wake()
    await until(lambda: len(store.looks) > 1)
    assert not waiting.done()
    store.ended.add("a")
    signals.wake()
    await waiting


@pytest.mark.parametrize("what", ["gone", "failing"])
async def test_a_reader_looks_by_itself_when_its_job_is_gone_or_the_store_fails(what: str) -> None:
    store = Events() if what == "gone" else Events(a=1)
    store.failure = MeshError(Reason.SERVICE_UNAVAILABLE) if what == "failing" else None
    assert await watched_over(store, Signals()).next_events("a", 1, 3600) is None


async def test_a_lost_signal_only_delays() -> None:
    store = Events(a=1)
    reader = asyncio.ensure_future(watched_over(store, Signals(), poll_seconds=0.001).next_events("a", 1, 3600))
    await until(lambda: bool(store.looks))
    store.known["a"] = 2
    assert numbers(await reader) == [2]


async def test_a_reader_leaves_when_its_time_is_over() -> None:
    store = Events(a=1)
    watched = watched_over(store, Signals())
    assert await watched.next_events("a", 1, 0.0) == ()
    assert not watched._waiting
