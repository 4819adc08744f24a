"""Group commit, on a log whose commits the test steps through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest

from libs.common.errors import MeshError, Reason
from services.audit.domain.errors import RecordIdTakenError, log_unavailable
from services.audit.domain.log.append_records import AppendRecords
from services.audit.domain.log.tail import Tail
from services.audit.domain.merkle.merkle import leaf_hash
from services.audit.domain.model import AppendResult, Entry
from services.audit.tests.sample import an_entry


class SteppedLog:
    """A log whose commits end when the test releases them."""

    def __init__(self) -> None:
        self.commits: list[list[str]] = []
        self.given: list[Sequence[Entry]] = []
        self.prepared: list[Sequence[Entry]] = []
        self.size = 0
        self.failures: list[Exception] = []
        self.begun = asyncio.Semaphore(0)
        self.finish = asyncio.Semaphore(0)

    async def append(self, entries: Sequence[Entry]) -> AppendResult:
        self.commits.append([entry.record_id for entry in entries])
        self.given.append(entries)
        self.begun.release()
        await self.finish.acquire()
        if self.failures:
            raise self.failures.pop()
        first, self.size = self.size, self.size + len(entries)
        return AppendResult(list(range(first, self.size)), len(entries), self.size)

    def prepare_next(self, entries: Sequence[Entry]) -> None:
        self.prepared.append(entries)

    async def commit_started(self) -> None:
        """Return when a commit has started."""
        await asyncio.wait_for(self.begun.acquire(), 60)


@pytest.fixture
def log() -> SteppedLog:
    return SteppedLog()


Begin = Callable[..., Awaitable[AppendRecords]]


@pytest.fixture
async def begin(log: SteppedLog) -> AsyncIterator[Begin]:
    started: list[AppendRecords] = []

    async def start(max_queued_bytes: int = 10_000_000, timeout: float = 3600.0) -> AppendRecords:
        started.append(AppendRecords(log, Tail(), max_queued_bytes=max_queued_bytes, timeout=timeout))
        await started[-1].start()
        return started[-1]

    yield start
    for append in started:
        for _ in range(100):
            log.finish.release()
        await append.stop()


async def sent(append: AppendRecords, *entries: Entry) -> asyncio.Task[int]:
    """Submit a batch and return when it is queued."""
    task = asyncio.ensure_future(append.append(entries))
    await asyncio.sleep(0)
    return task


async def reason_of(task: asyncio.Task[int]) -> Reason:
    with pytest.raises(MeshError) as caught:
        await asyncio.wait_for(task, 60)
    return caught.value.reason


async def test_batches_that_arrive_during_a_commit_share_the_next(log: SteppedLog, begin: Begin) -> None:
    append = await begin()
    a, b, c, d = (an_entry() for _ in range(4))
    first = await sent(append, a)
    await log.commit_started()
    second, third = await sent(append, b, c), await sent(append, d)
    log.finish.release()
    await log.commit_started()
    log.finish.release()
    assert [await first, await second, await third] == [0, 2, 3]
    assert log.commits == [[a.record_id], [b.record_id, c.record_id, d.record_id]]


async def test_a_commit_takes_no_further_batch_once_it_has_enough(log: SteppedLog) -> None:
    append = AppendRecords(log, Tail(), group=3, timeout=3600)
    await append.start()
    blocker = await sent(append, an_entry())
    await log.commit_started()
    batches = [await sent(append, *(an_entry() for _ in range(count))) for count in (2, 2, 1, 5, 1)]
    for _ in range(4):
        log.finish.release()
    assert [await task for task in (blocker, *batches)] == [0, 2, 4, 5, 10, 11]
    assert [len(commit) for commit in log.commits] == [1, 4, 6, 1]
    await append.stop()


async def test_a_full_group_is_made_ready_while_another_is_committed(log: SteppedLog) -> None:
    append = AppendRecords(log, Tail(), group=3, timeout=3600)
    await append.start()
    first = await sent(append, an_entry())
    await log.commit_started()
    second = await sent(append, an_entry(), an_entry())
    assert not log.prepared
    third = await sent(append, an_entry())
    fourth = await sent(append, *(an_entry() for _ in range(4)))
    [ready] = log.prepared
    assert len(ready) == 3
    for _ in range(3):
        log.finish.release()
    assert [await task for task in (first, second, third, fourth)] == [0, 2, 3, 7]
    assert log.given[1] is ready
    assert [len(commit) for commit in log.commits] == [1, 3, 4]
    await append.stop()


async def test_a_prepared_group_is_committed_after_a_failed_commit_and_before_stopping(log: SteppedLog) -> None:
    append = AppendRecords(log, Tail(), group=2, timeout=3600)
    await append.start()
    log.failures.append(log_unavailable())
    failing = await sent(append, an_entry())
    await log.commit_started()
    ready, last = await sent(append, an_entry(), an_entry()), await sent(append, an_entry())
    assert len(log.prepared) == 1
    stopping = asyncio.ensure_future(append.stop())
    for _ in range(3):
        log.finish.release()
    assert await reason_of(failing) is Reason.AUDIT_UNAVAILABLE
    await asyncio.wait_for(stopping, 60)
    assert [await ready, await last] == [1, 2]


async def test_nothing_is_acknowledged_before_its_commit_has_ended(log: SteppedLog, begin: Begin) -> None:
    append = await begin()
    task = await sent(append, an_entry())
    await log.commit_started()
    assert not task.done()
    log.finish.release()
    assert await task == 0


async def test_a_commit_wakes_those_who_follow_the_log(log: SteppedLog) -> None:
    tail = Tail()
    append = AppendRecords(log, tail, timeout=3600)
    await append.start()
    following = asyncio.ensure_future(tail.wait_beyond(0, timeout=3600))
    await sent(append, an_entry())
    log.finish.release()
    await asyncio.wait_for(following, 60)
    await append.stop()


async def test_a_failed_commit_reaches_its_own_batches_and_the_next_one_goes_on(log: SteppedLog, begin: Begin) -> None:
    append = await begin()
    log.failures.append(log_unavailable())
    failing = await sent(append, an_entry())
    await log.commit_started()
    later = await sent(append, an_entry())
    log.finish.release()
    assert await reason_of(failing) is Reason.AUDIT_UNAVAILABLE
    log.finish.release()
    assert await later == 0


async def violation_of(task: asyncio.Task[int]) -> tuple[Reason, str, str, str]:
    with pytest.raises(MeshError) as caught:
        await asyncio.wait_for(task, 60)
    [violation] = caught.value.violations
    return caught.value.reason, violation.path, violation.rule, caught.value.metadata["record_id"]


async def test_a_batch_with_the_id_of_another_record_is_refused_and_the_others_of_its_commit_are_not(
    log: SteppedLog, begin: Begin
) -> None:
    append, known, own = await begin(), an_entry(), an_entry()
    blocker = await sent(append, an_entry())
    await log.commit_started()
    again = await sent(append, an_entry(), known, known)
    taken = await sent(append, own, an_entry(record_id=known.record_id))
    # Nothing of that batch is stored, so its ids stay free.
    free = await sent(append, an_entry(record_id=own.record_id))
    within = await sent(append, an_entry(record_id="one-for-two"), an_entry(record_id="one-for-two"))
    between = await sent(append, an_entry(), own)
    log.finish.release()
    await log.commit_started()
    log.failures.append(RecordIdTakenError({known.record_id: leaf_hash(known.canonical)}))
    log.finish.release()
    log.finish.release()
    assert [await blocker, await again, await free] == [0, 3, 4]
    for task, record_id in ((taken, known.record_id), (within, "one-for-two"), (between, own.record_id)):
        refused = await violation_of(task)
        assert refused == (Reason.AUDIT_RECORD_INVALID, "record_id", "record_id.taken", record_id)
    assert [len(commit) for commit in log.commits] == [1, 10, 4]


async def test_a_commit_of_which_nothing_is_left_is_not_made(log: SteppedLog, begin: Begin) -> None:
    append, known = await begin(), an_entry()
    log.failures.append(RecordIdTakenError({known.record_id: leaf_hash(known.canonical)}))
    taken = await sent(append, an_entry(record_id=known.record_id))
    log.finish.release()
    assert await reason_of(taken) is Reason.AUDIT_RECORD_INVALID
    log.finish.release()
    assert await (await sent(append, an_entry())) == 0
    assert len(log.commits) == 2


async def test_an_unexpected_error_reaches_the_waiting_stream(log: SteppedLog, begin: Begin) -> None:
    append = await begin()
    log.failures.append(ZeroDivisionError())
    task = await sent(append, an_entry())
    log.finish.release()
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(task, 60)


async def test_a_canceled_stream_does_not_affect_others_in_its_commit(log: SteppedLog, begin: Begin) -> None:
    append = await begin()
    blocker = await sent(append, an_entry())
    await log.commit_started()
    leaving, staying = await sent(append, an_entry()), await sent(append, an_entry())
    leaving.cancel()
    log.finish.release()
    log.finish.release()
    assert [await blocker, await staying] == [0, 2]


async def test_a_full_queue_refuses_and_takes_again_when_it_has_emptied(log: SteppedLog, begin: Begin) -> None:
    entry = an_entry()
    append = await begin(max_queued_bytes=len(entry.canonical))
    blocker = await sent(append, an_entry())
    await log.commit_started()
    waiting = await sent(append, entry)
    assert await reason_of(await sent(append, an_entry())) is Reason.AUDIT_BACKPRESSURE
    log.finish.release()
    await log.commit_started()
    accepted = await sent(append, an_entry())
    log.finish.release()
    log.finish.release()
    assert [await blocker, await waiting, await accepted] == [0, 1, 2]


async def test_a_batch_larger_than_the_queue_is_taken_alone(log: SteppedLog, begin: Begin) -> None:
    append = await begin(max_queued_bytes=1)
    task = await sent(append, an_entry(), an_entry())
    log.finish.release()
    assert await task == 1


async def test_a_commit_that_never_ends_is_given_up_with_a_typed_error(log: SteppedLog, begin: Begin) -> None:
    append = await begin(timeout=0.01)
    assert await reason_of(await sent(append, an_entry())) is Reason.AUDIT_UNAVAILABLE


async def test_stop_commits_queued_batches(log: SteppedLog, begin: Begin) -> None:
    append = await begin()
    first = await sent(append, an_entry())
    await log.commit_started()
    second = await sent(append, an_entry())
    stopping = asyncio.ensure_future(append.stop())
    log.finish.release()
    log.finish.release()
    await asyncio.wait_for(stopping, 60)
    assert [first.result(), await second] == [0, 1]
