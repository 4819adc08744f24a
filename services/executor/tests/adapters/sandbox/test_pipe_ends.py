"""The end of a pipe that is closed once."""

from __future__ import annotations

import asyncio
import os

import pytest
import uvloop

from services.executor.adapters.sandbox.pipe_ends import PipeEnd


def test_a_number_that_has_become_something_else_is_not_closed() -> None:
    reading, writing = os.pipe()
    end = PipeEnd(reading)
    os.close(reading)
    os.dup2(other := os.open("/dev/null", os.O_RDONLY), end.fileno())
    end.close()
    os.fstat(end.fileno())
    for descriptor in {end.fileno(), other, writing}:
        os.close(descriptor)


def test_an_end_is_closed_and_closed_again() -> None:
    reading, writing = os.pipe()
    end = PipeEnd(reading)
    end.close()
    with pytest.raises(OSError):
        os.fstat(reading)
    end.close()
    os.close(writing)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_no_loop_closes_what_is_not_its_own(loop: object) -> None:
    async def read_and_close() -> None:
        reading, writing = os.pipe()
        running = asyncio.get_running_loop()
        ended = running.create_future()

        class Ending(asyncio.Protocol):
            def connection_lost(self, error: Exception | None) -> None:
                # The descriptor is free from now on, so this gets its number.
                ended.set_result(os.open("/dev/null", os.O_RDONLY))

        await running.connect_read_pipe(Ending, PipeEnd(reading))
        os.close(writing)
        taken = await ended
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        os.fstat(taken)
        os.close(taken)

    with asyncio.Runner(loop_factory=loop) as runner:  # type: ignore[arg-type]
        runner.run(read_and_close())
