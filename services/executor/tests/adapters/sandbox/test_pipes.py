"""Pipes as asyncio streams."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from services.executor.adapters.sandbox.pipes import PipeEnd, attach_pipes, open_pipes
from services.executor.tests.waiting import until


def held() -> list[int]:
    return sorted(int(entry.name) for entry in Path("/proc/self/fd").iterdir() if entry.exists())


def test_open_pipes_opens_all_or_none() -> None:
    # Descriptors of other tests that nothing refers to any more are closed first.
    gc.collect()
    usual, before = resource.getrlimit(resource.RLIMIT_NOFILE), held()
    spare = [os.open(os.devnull, os.O_RDONLY) for _ in range(before[-1] - len(before) + 4)]
    last = max(held())
    os.close(spare.pop())
    os.close(spare.pop())
    os.close(spare.pop())
    # Descriptors for one and a half pipes.
    resource.setrlimit(resource.RLIMIT_NOFILE, (last + 1, usual[1]))
    try:
        with pytest.raises(OSError):
            open_pipes(2)
        [(end, other)] = open_pipes(1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)
    for descriptor in (end, other, *spare):
        os.close(descriptor)
    assert set(held()) <= set(before)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_canceled_attach_leaves_no_pipe_open(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def cancel_after(steps: int) -> None:
        (stdin, to_stdin), (inputs, to_inputs), (from_stdout, stdout), (from_events, events) = open_pipes(4)
        attaching = asyncio.ensure_future(attach_pipes([to_stdin, to_inputs], [from_stdout, from_events]))
        for _ in range(steps):
            await asyncio.sleep(0)
        if attaching.done():
            attaching.result().close_writers()
            attaching.result().close_readers()
        attaching.cancel()
        await asyncio.wait([attaching])
        for end in (stdin, stdout, inputs, events):
            os.close(end)

    async def cancel_everywhere() -> None:
        await cancel_after(50)
        before = held()
        for steps in range(1, 16):
            await cancel_after(steps)
        await until(lambda: held() == before)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(cancel_everywhere())


def test_a_reused_descriptor_is_not_closed() -> None:
    reading, writing = os.pipe()
    end = PipeEnd(reading)
    os.close(reading)
    os.dup2(other := os.open("/dev/null", os.O_RDONLY), end.fileno())
    end.close()
    os.fstat(end.fileno())
    for descriptor in {end.fileno(), other, writing}:
        os.close(descriptor)


def test_a_pipe_end_can_be_closed_twice() -> None:
    reading, writing = os.pipe()
    end = PipeEnd(reading)
    end.close()
    with pytest.raises(OSError):
        os.fstat(reading)
    end.close()
    os.close(writing)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_event_loops_close_only_their_own_descriptor(loop: object) -> None:
    async def read_and_close() -> None:
        reading, writing = os.pipe()
        running = asyncio.get_running_loop()
        ended = running.create_future()

        class OnClose(asyncio.Protocol):
            def connection_lost(self, error: Exception | None) -> None:
                # The descriptor is free now, so this open reuses its number.
                ended.set_result(os.open("/dev/null", os.O_RDONLY))

        await running.connect_read_pipe(OnClose, PipeEnd(reading))
        os.close(writing)
        taken = await ended
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        os.fstat(taken)
        os.close(taken)

    with asyncio.Runner(loop_factory=loop) as runner:  # type: ignore[arg-type]
        runner.run(read_and_close())
