"""The language process: its responses, its lifetime, and recovery after it ends."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import struct
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from services.registry.adapters.language.process import LanguageProcess
from services.registry.domain.discovery.ports import LanguageUnavailableError
from services.registry.tests.conftest import QUIET
from services.registry.tests.polling import until


@pytest.fixture
async def language() -> AsyncIterator[LanguageProcess]:
    process = LanguageProcess(QUIET)
    yield process
    await process.stop()


def floats(vector: bytes) -> list[float]:
    return list(struct.unpack("<384e", vector))


def cosine(left: bytes, right: bytes) -> float:
    return sum(a * b for a, b in zip(floats(left), floats(right), strict=True))


async def ended(pid: int) -> None:
    """Wait until a process has ended, reaped or not."""

    async def alive() -> bool:
        return _runs(pid)

    await until(alive, lambda running: not running)


def _runs(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


async def test_sentences_are_as_near_as_the_model_is_known_to_find_them(language: LanguageProcess) -> None:
    """The similarities that the model's own page shows for these sentences."""
    source, *others = await language.embed(
        ["That is a happy person", "That is a happy dog", "That is a very happy person", "Today is a sunny day"]
    )
    assert [cosine(source, other) for other in others] == pytest.approx([0.695, 0.943, 0.257], abs=0.002)
    assert math.isclose(cosine(source, source), 1.0, abs_tol=1e-3)


async def test_texts_in_one_batch_do_not_touch_each_other(language: LanguageProcess) -> None:
    texts = ["short", "a much longer text about something else entirely, with many more words in it", "third"]
    together = await language.embed(texts)
    alone = [(await language.embed([text]))[0] for text in texts]
    assert [cosine(a, b) for a, b in zip(together, alone, strict=True)] == pytest.approx([1.0] * 3, abs=1e-3)
    assert (await language.embed(["", "x" * 100_000])) != []


async def test_tokens_are_counted_by_the_tokenizer_that_is_named(language: LanguageProcess) -> None:
    text = 'Grüße 你好 don\'t 12345678\r\n  {"type":"object"} <|endoftext|>'
    o200k, cl100k = [(await language.count([text, ""], name)) for name in language.tokenizers]
    assert (o200k, cl100k) == ([24, 0], [25, 0])


async def test_the_language_process_starts_on_demand_and_ends_when_idle() -> None:
    process = LanguageProcess(QUIET, linger=0.05, background_linger=0.0)
    assert process.pid is None
    await process.count(["a"], "o200k_base")
    pid = process.pid
    assert pid is not None
    await ended(pid)
    assert await process.count(["a b"], "o200k_base") == [2]
    await process.stop()
    assert process.pid is None


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_process_that_is_killed_costs_at_most_one_question(loop_factory: Callable[[], Any]) -> None:
    """Both event loops, because they report a dead process differently."""

    async def killed() -> None:
        language = LanguageProcess(QUIET)
        for notice in (True, False):
            await language.count(["a"], "o200k_base")
            pid = language.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            if notice:
                await ended(pid)
            with suppress(LanguageUnavailableError):
                await language.count(["a"], "o200k_base")
            assert await language.count(["a b"], "o200k_base") == [2]
            assert language.pid != pid
        await language.stop()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(killed())


async def test_a_cancelled_request_leaves_no_response_for_the_next(language: LanguageProcess) -> None:
    await language.count(["warm"], "o200k_base")
    hasty = asyncio.ensure_future(language.count(["one two three four"], "o200k_base"))
    await asyncio.sleep(0)
    hasty.cancel()
    assert await language.count(["five"], "o200k_base") == [1]


async def test_a_failed_request_is_reported_and_the_process_survives(language: LanguageProcess) -> None:
    with pytest.raises(LanguageUnavailableError):
        await language.count(["a"], "no_such_tokenizer")
    pid = language.pid
    assert await language.count(["a"], "o200k_base") == [1]
    assert language.pid == pid


async def test_the_language_process_ends_with_its_parent() -> None:
    """The process ends when its stdin closes, however the parent ended."""
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.registry.adapters.language", stdin=asyncio.subprocess.PIPE
    )
    assert started.stdin is not None
    started.stdin.close()
    assert await started.wait() == 0
