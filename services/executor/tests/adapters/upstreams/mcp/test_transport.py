"""Messages of MCP servers are read strictly, bounded, and split into lines in linear time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from services.executor.adapters.runners.worker.frames import MAX_VALUES
from services.executor.adapters.upstreams.mcp.transport import (
    AnswerTooLargeError,
    RpcError,
    ServerLostError,
    UnreadableAnswerError,
    read_lines,
    read_message,
)

LIMIT = 4 << 20


async def chunked(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def lines(limit: int, *chunks: bytes) -> list[bytes]:
    return [line async for line in read_lines(chunked(*chunks), limit)]


async def test_lines_are_split_wherever_the_chunks_end() -> None:
    assert await lines(10, b"a", b"b\nc", b"\r\n\nd\ne") == [b"ab", b"c", b"", b"d"]


async def test_a_line_has_at_most_so_many_bytes() -> None:
    assert await lines(4, b"abcd", b"\n") == [b"abcd"]
    with pytest.raises(AnswerTooLargeError):
        await lines(4, b"abc", b"de")


def test_a_response_has_a_result_or_an_error() -> None:
    assert read_message(b'{"id":1,"result":{"a":1}}', LIMIT).result() == {"a": 1}
    with pytest.raises(RpcError) as caught:
        read_message(b'{"id":1,"error":{"code":-32601,"message":"unknown"}}', LIMIT).result()
    assert caught.value.code == -32601
    with pytest.raises(ServerLostError):
        read_message(b'{"id":1}', LIMIT).result()


@pytest.mark.parametrize("number", [b'1,"a":2', b"9007199254740993.0", b"123456789012345678901"])
def test_an_answer_that_is_not_strict_is_still_known_by_its_id(number: bytes) -> None:
    message = read_message(b'{"id":1,"result":{"a":' + number + b"}}", LIMIT)
    assert message.id == 1
    with pytest.raises(UnreadableAnswerError):
        message.result()


@pytest.mark.parametrize("payload", [b"hello", b"[]", b"7", b""])
def test_something_else_than_a_message_ends_the_server(payload: bytes) -> None:
    with pytest.raises(ServerLostError):
        read_message(payload, LIMIT)


def test_the_number_of_values_is_bounded() -> None:
    with pytest.raises(AnswerTooLargeError):
        read_message(b'{"id":1,"result":{"a":[' + b"0," * MAX_VALUES + b"0]}}", LIMIT)
