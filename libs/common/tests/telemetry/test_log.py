"""Lines reach their descriptor whole, in order, and soon."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from libs.common.auth.identity import Identity
from libs.common.call_context import Call
from libs.common.telemetry.log import FLUSH_BYTES, Log
from libs.common.trace_context import TraceContext


@pytest.fixture
def place(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    path = tmp_path / "log"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    yield path, descriptor
    os.close(descriptor)


def lines(path: Path) -> list[dict[str, object]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


async def test_lines_are_gathered_and_written_a_moment_later(
    place: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, descriptor = place
    log, written = Log("a", descriptor=descriptor), asyncio.Event()
    flush = log.flush
    monkeypatch.setattr(log, "flush", lambda: (flush(), written.set()))  # type: ignore[func-returns-value]
    log.info("one")
    log.info("two", number=2)
    assert lines(path) == []
    await written.wait()
    assert [(line["event"], line.get("number")) for line in lines(path)] == [("one", None), ("two", 2)]


@pytest.mark.parametrize("level", ["warning", "error"])
async def test_what_is_wrong_is_written_at_once_with_what_led_to_it(place: tuple[Path, int], level: str) -> None:
    path, descriptor = place
    log = Log("a", descriptor=descriptor)
    log.info("before")
    getattr(log, level)("wrong")
    assert [line["event"] for line in lines(path)] == ["before", "wrong"]


def test_without_a_loop_nothing_is_held_back(place: tuple[Path, int]) -> None:
    path, descriptor = place
    Log("a", descriptor=descriptor).info("one")
    assert [line["event"] for line in lines(path)] == ["one"]


async def test_much_is_not_held_back(place: tuple[Path, int]) -> None:
    path, descriptor = place
    log = Log("a", descriptor=descriptor)
    log.info("big", text="x" * FLUSH_BYTES)
    assert [line["event"] for line in lines(path)] == ["big"]


def test_a_line_that_a_loop_took_with_it_does_not_hold_back_later_ones(
    place: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, descriptor = place
    log = Log("a", descriptor=descriptor)

    async def write() -> None:
        log.info("left behind")

    asyncio.run(write())
    monkeypatch.setattr("libs.common.telemetry.log.FLUSH_SECONDS", 0.01)
    log._due -= 10
    log.info("next")
    assert [line["event"] for line in lines(path)] == ["left behind", "next"]


async def test_lines_of_threads_and_the_loop_stay_whole(place: tuple[Path, int]) -> None:
    path, descriptor = place
    log = Log("a", descriptor=descriptor)

    def write(name: str) -> None:
        for number in range(300):
            log.info("line", writer=name, number=number, text="é" * 50)

    threads = [threading.Thread(target=write, args=(f"t{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    write("loop")
    for thread in threads:
        await asyncio.to_thread(thread.join)
    log.flush()
    written = lines(path)
    assert len(written) == 5 * 300
    for name in ["loop", "t0", "t1", "t2", "t3"]:
        assert [line["number"] for line in written if line["writer"] == name] == list(range(300))


async def test_the_line_of_a_call_says_what_it_was_and_how_it_ended(place: tuple[Path, int]) -> None:
    path, descriptor = place
    trace = TraceContext("ab" * 16, "cd" * 8, "ef" * 8, sampled=False)
    call = Call("/a.B/C", trace, peer="executor", token="secret", request_id='or"der\n\ud800')
    call.identity = Identity(subject="did:web:grüße", token_id="", expires_at=0.0)
    call.offered = 1.5
    Log("a", descriptor=descriptor).calls([(call, "OK", 0.0123456, 1_700_000_000.000_05)])
    assert b"secret" not in path.read_bytes()
    [line] = map(json.loads, path.read_text().splitlines())
    assert line == {
        "ts": "2023-11-14T22:13:20.000050+00:00",
        "level": "info",
        "service": "a",
        "event": "call",
        "trace_id": "ab" * 16,
        "method": "/a.B/C",
        "code": "OK",
        "ms": 12.346,
        "deadline_ms": 1500.0,
        "peer": "executor",
        "subject": "did:web:grüße",
        "span_id": "cd" * 8,
        "parent_id": "ef" * 8,
        "request_id": 'or"der\n\ud800',
    }


def test_calls_are_not_written_where_only_what_is_wrong_is(place: tuple[Path, int]) -> None:
    path, descriptor = place
    call = Call("/a.B/C", TraceContext("ab" * 16, "cd" * 8, "", sampled=False))
    Log("a", level="warning", descriptor=descriptor).calls([(call, "OK", 0.1, 1.0)])
    assert lines(path) == []


class Narrow:
    """A place of so many bytes, to which nothing more can be written until there is room again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.room, self._write = room, os.write
        monkeypatch.setattr(os, "write", self.write)

    def write(self, descriptor: int, text: bytes) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = self._write(descriptor, text[: self.room])
        self.room -= taken
        return taken


def test_a_full_disk_does_not_fail_the_writer() -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    log = Log("a", descriptor=descriptor)
    try:
        log.info("one")
        log.warning("two")
        log.error("three", cause=ValueError("why"))
        log.flush()
    finally:
        os.close(descriptor)


def test_an_unread_pipe_does_not_fail_the_writer() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        Log("a", descriptor=writer).error("one")
    finally:
        os.close(writer)


@pytest.mark.parametrize("room", [0, 30])
def test_the_first_line_after_a_full_disk_says_how_many_are_missing(
    place: tuple[Path, int], monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    path, descriptor = place
    log, disk = Log("a", descriptor=descriptor), Narrow(monkeypatch, room)
    log.warning("one")
    log.warning("two")
    disk.room = 1_000_000
    log.warning("three")
    log.warning("four")
    whole = [orjson.loads(line) for line in path.read_bytes().splitlines() if line.endswith(b"}")]
    assert [(line["event"], line.get("count")) for line in whole] == [
        ("lines lost", 2),
        ("three", None),
        ("four", None),
    ]


@pytest.mark.parametrize("value", [Path(os.fsdecode(b"caf\xe9")), "\ud800", 2**70, {1: "a"}, {"deep": ["\udcff"]}])
@pytest.mark.parametrize("level", ["info", "error"])
def test_what_json_cannot_hold_is_spelled_out(place: tuple[Path, int], value: object, level: str) -> None:
    path, descriptor = place
    getattr(Log("a", descriptor=descriptor), level)("one", value=value)
    [line] = lines(path)
    assert line["event"] == "one"
    assert "value" in line
