"""Frames: bounded while they are read, and parsed strictly."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from services.executor.adapters.runners.worker import frames
from services.executor.adapters.runners.worker.frames import FrameError, encode_frame, read_frame


def stream(content: bytes, *, ends: bool = True) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    reader.feed_data(content)
    if ends:
        reader.feed_eof()
    return reader


@pytest.mark.parametrize("value", [{}, {"a": [1, 2.5, None, True, "ü\n"]}, {"big": 2**63}])
async def test_an_encoded_frame_is_read_back(value: dict[str, Any]) -> None:
    reader = stream(encode_frame(value) + encode_frame({"next": 1}))
    assert await read_frame(reader, 1000) == (False, value)
    assert await read_frame(reader, 1000) == (False, {"next": 1})


async def test_a_frame_that_precedes_an_answer_is_marked_and_small() -> None:
    body = b'{"early":1}'
    assert await read_frame(stream((len(body) | 1 << 31).to_bytes(4, "big") + body), 10) == (True, {"early": 1})
    with pytest.raises(FrameError):
        await read_frame(stream(((16 << 10) + 1 | 1 << 31).to_bytes(4, "big"), ends=False), 1 << 20)


async def test_an_oversized_frame_is_refused_by_its_length() -> None:
    # No body follows: waiting for it would never end.
    with pytest.raises(FrameError) as caught:
        await read_frame(stream((1001).to_bytes(4, "big"), ends=False), 1000)
    assert caught.value.size == 1001


@pytest.mark.parametrize("content", [b"", b"\0\0", b"\0\0\0\5{}"])
async def test_a_truncated_frame_is_an_incomplete_read(content: bytes) -> None:
    with pytest.raises(asyncio.IncompleteReadError):
        await read_frame(stream(content), 1000)


@pytest.mark.parametrize(
    "body", [b"[]", b"1", b"{", b"\xff", b'{"a":1,"a":2}', b'{"a":NaN}', b'{"a":1e999}', b'{"a":123456789012345678901}']
)
async def test_a_frame_that_is_not_a_strict_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(FrameError):
        await read_frame(stream(len(body).to_bytes(4, "big") + body), 1000)


async def test_nesting_is_bounded() -> None:
    body = b'{"a":' + b"[" * 70 + b"]" * 70 + b"}"
    with pytest.raises(FrameError):
        await read_frame(stream(len(body).to_bytes(4, "big") + body), 1000)


async def test_separators_inside_strings_are_not_counted_as_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_VALUES", 100)
    value = {"csv": '1,"[{,' * 200, "rows": ["\\", ",,,"]}
    assert await read_frame(stream(encode_frame(value)), 10_000) == (False, value)
    many = {"a": [","] * 200}
    with pytest.raises(FrameError):
        await read_frame(stream(encode_frame(many)), 10_000)


async def test_many_small_values_are_refused_before_they_fill_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_VALUES", 100)
    body = b'{"a":[' + b"[]," * 200 + b"0]}"
    with pytest.raises(FrameError) as caught:
        await read_frame(stream(len(body).to_bytes(4, "big") + body), 10_000)
    assert caught.value.size == len(body)
