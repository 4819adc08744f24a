"""The output of a tool as frames, tested outside a sandbox."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from services.executor.worker.toolmesh_tool import frames
from services.executor.worker.toolmesh_tool.output import LOG, MAX_CHARACTERS, ToolOutput
from services.executor.worker.toolmesh_tool.responses import ResponsePipe

PIPE_BUF = 4096


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ToolOutput, int]]:
    reading, writing = os.pipe()
    for name in ("stdout", "stderr"):
        # Restored at the end: the output replaces both.
        monkeypatch.setattr(sys, name, getattr(sys, name))
    yield ToolOutput(ResponsePipe(writing)), reading
    os.close(reading)
    os.close(writing)


def received(pipe: int) -> list[dict[str, Any]]:
    os.set_blocking(pipe, False)
    found = []
    try:
        while True:
            length = int.from_bytes(os.read(pipe, 4), "big")
            # What precedes an answer is marked.
            assert length >> 31 == 1
            found.append(json.loads(os.read(pipe, length & 0x7FFF_FFFF)))
    except BlockingIOError:
        return found


def test_lines_belong_to_the_call_under_way(pipe: tuple[ToolOutput, int]) -> None:
    output, reading = pipe
    output.install()
    print("loading")  # noqa: T201
    output.begin("one")
    print("a", "b")  # noqa: T201
    output.write(LOG, "noted\n")
    sys.stderr.write("half")
    sys.stdout.close()
    output.end()
    output.write(LOG, "between two calls")
    output.begin("two")
    print("after a close")  # noqa: T201
    output.end()
    sent = [(frame["id"], frame["output"]["source"], frame["output"]["text"]) for frame in received(reading)]
    assert sent == [
        ("one", "stdout", "loading\n"),
        ("one", "stdout", "a b\n"),
        ("one", "log", "noted\n"),
        ("one", "stderr", "half"),
        ("two", "stdout", "after a close\n"),
    ]


def test_frames_are_written_at_once_and_are_limited(pipe: tuple[ToolOutput, int]) -> None:
    output, reading = pipe
    output.begin("one")
    output.write(LOG, "\x00" * 5000)
    for frame in received(reading):
        assert len(frames.encode(frame)) + 4 <= PIPE_BUF
    for _ in range(100):
        output.write(LOG, "x" * 1000)
        received(reading)
    output.end()
    [last] = received(reading)
    assert 0 < 105_000 - last["output"]["omitted"] <= MAX_CHARACTERS
