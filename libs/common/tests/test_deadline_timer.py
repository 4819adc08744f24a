"""Many calls, one timer: who is late is cancelled, who is in time or withdrawn by another is left alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from libs.common.deadline_timer import EXACT_BELOW, DeadlineTimers

LONG = 60.0
Work = Callable[[], Awaitable[None]]


async def forever() -> None:
    await asyncio.Event().wait()


async def boxed(boxes: DeadlineTimers, seconds: float, work: Work) -> BaseException | None:
    """Run the work in a box and return what the call ends with."""
    box = boxes.open(seconds, asyncio.get_running_loop().time())
    error: BaseException | None = None
    try:
        await work()
    except BaseException as raised:
        error = raised
    boxes.close(box)
    return box.outcome(error)


@pytest.mark.parametrize("seconds", [0.001, EXACT_BELOW / 2, EXACT_BELOW, EXACT_BELOW + 0.02])
async def test_work_that_does_not_end_is_a_timeout(seconds: float) -> None:
    boxes = DeadlineTimers()
    assert isinstance(await boxed(boxes, seconds, forever), TimeoutError)
    assert asyncio.current_task() is not None
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


@pytest.mark.parametrize("seconds", [EXACT_BELOW, EXACT_BELOW * 1.5, EXACT_BELOW / 2])
async def test_a_box_never_ends_late_and_hardly_early(seconds: float) -> None:
    loop, boxes = asyncio.get_running_loop(), DeadlineTimers()
    due: list[float] = []
    # Not how long it took, which a busy machine decides, but which moment the loop was asked for.
    asked = loop.call_at
    loop.call_at = lambda when, *rest, **more: (due.append(when), asked(when, *rest, **more))[1]  # type: ignore[assignment, func-returns-value, method-assign]
    begin = loop.time()
    box = boxes.open(seconds, asyncio.get_running_loop().time())
    opened = loop.time()
    boxes.close(box)
    loop.call_at = asked  # type: ignore[method-assign]
    assert due
    assert begin + seconds - 0.006 <= due[0] <= opened + seconds


async def test_work_that_ends_in_time_keeps_its_outcome() -> None:
    boxes = DeadlineTimers()

    async def fails() -> None:
        raise LookupError

    async def ends() -> None:
        await asyncio.sleep(0)

    assert await boxed(boxes, LONG, ends) is None
    assert isinstance(await boxed(boxes, LONG, fails), LookupError)


async def test_a_withdrawn_call_is_no_timeout() -> None:
    boxes = DeadlineTimers()
    call = asyncio.create_task(boxed(boxes, LONG, forever))
    await asyncio.sleep(0)
    call.cancel()
    assert isinstance(await call, asyncio.CancelledError)


async def test_a_call_that_is_withdrawn_while_it_times_out_stays_withdrawn() -> None:
    boxes, withdrawn = DeadlineTimers(), asyncio.Event()

    async def slow_to_end() -> None:
        try:
            await forever()
        except asyncio.CancelledError:
            withdrawn.set()
            await forever()

    call = asyncio.create_task(boxed(boxes, 0.01, slow_to_end))
    await withdrawn.wait()
    call.cancel()
    assert isinstance(await call, asyncio.CancelledError)


async def test_a_short_box_is_not_kept_waiting_by_a_long_one_that_was_opened_first() -> None:
    boxes = DeadlineTimers()
    long = asyncio.create_task(boxed(boxes, LONG, forever))
    await asyncio.sleep(0)
    assert isinstance(await boxed(boxes, EXACT_BELOW + 0.01, forever), TimeoutError)
    assert not long.done()
    long.cancel()
    await long


async def test_the_timer_goes_on_to_the_next_box_when_the_one_it_was_set_for_has_gone() -> None:
    boxes = DeadlineTimers()
    first = boxes.open(EXACT_BELOW, asyncio.get_running_loop().time())
    later = asyncio.create_task(boxed(boxes, EXACT_BELOW + 0.03, forever))
    await asyncio.sleep(0)
    boxes.close(first)
    assert isinstance(await later, TimeoutError)


async def test_of_many_boxes_exactly_the_late_ones_end() -> None:
    boxes, release = DeadlineTimers(), asyncio.Event()

    async def released() -> None:
        await release.wait()

    late = [asyncio.create_task(boxed(boxes, EXACT_BELOW + 0.0001 * i, released)) for i in range(200)]
    in_time = [asyncio.create_task(boxed(boxes, LONG, released)) for _ in range(200)]
    assert all(isinstance(error, TimeoutError) for error in await asyncio.gather(*late))
    release.set()
    assert await asyncio.gather(*in_time) == [None] * 200
    assert boxes._open == set()
