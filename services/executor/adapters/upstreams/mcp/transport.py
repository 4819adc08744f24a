"""The transport port of the MCP client, how messages are read, and how requests fail."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from libs.common.errors import MeshError
from libs.common.json.jsonio import parse, refuse_many_values
from services.executor.adapters.runners.worker.frames import MAX_VALUES

Params = dict[str, Any]
OnProgress = Callable[[Mapping[str, Any]], None]
"""Takes the parameters of a progress notification."""


class ServerLostError(Exception):
    """The server ended, closed the connection or broke the protocol. The text is the executor's own."""


class AnswerTooLargeError(Exception):
    """An answer has more bytes than the limit."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit


class UnreadableAnswerError(Exception):
    """An answer is not strict JSON, such as a number that no double holds."""


class RpcError(Exception):
    """The server answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class Transport(Protocol):
    """Carries JSON-RPC messages to one server."""

    async def request(self, method: str, params: Params, on_progress: OnProgress | None = None) -> dict[str, Any]:
        """Return the result of a request.

        Raises RpcError, ServerLostError, AnswerTooLargeError or UnreadableAnswerError.

        It has no deadline of its own: the caller cancels it, and the server is then asked to stop.
        """
        ...

    async def notify(self, method: str, params: Params) -> None:
        """Send a notification. Raises ServerLostError."""
        ...

    def adopt(self, revision: str, *, modern: bool) -> None:
        """Use a protocol revision for all later messages."""
        ...


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a server."""

    fields: Mapping[str, Any]
    is_strict: bool
    """False if it has no canonical form, such as a number that no double holds."""

    @property
    def method(self) -> Any:
        """The method of a request or a notification; None for a response."""
        return self.fields.get("method")

    @property
    def id(self) -> Any:
        """The id of a request or a response; None for a notification."""
        return self.fields.get("id")

    def result(self) -> dict[str, Any]:
        """Return the result of a response. Raises RpcError, UnreadableAnswerError, and ServerLostError for none."""
        if not self.is_strict:
            raise UnreadableAnswerError
        error, result = self.fields.get("error"), self.fields.get("result")
        if isinstance(error, dict):
            code, text = error.get("code"), error.get("message")
            raise RpcError(code if type(code) is int else 0, text if isinstance(text, str) else "")
        if not isinstance(result, dict):
            raise ServerLostError("the server sent a response without a result")
        return result


def read_message(payload: bytes, max_bytes: int) -> Message:
    """Parse a message. Raises AnswerTooLargeError for too many values, and ServerLostError for something else.

    Large messages take long: they belong beside the event loop.
    """
    try:
        refuse_many_values(payload, MAX_VALUES)
    except MeshError:
        raise AnswerTooLargeError(max_bytes) from None
    try:
        fields, is_strict = parse(payload, max_bytes=max_bytes), True
    except MeshError:
        fields, is_strict = _parse_leniently(payload), False
    if not isinstance(fields, dict):
        raise ServerLostError("the server sent something else than a message")
    return Message(fields, is_strict)


async def read_lines(chunks: AsyncIterable[bytes], max_bytes: int) -> AsyncIterator[bytes]:
    """Split a stream into lines, without their ends. Raises AnswerTooLargeError for a longer one."""
    buffer, searched = bytearray(), 0
    async for chunk in chunks:
        buffer += chunk
        while (end := buffer.find(b"\n", searched)) >= 0:
            with memoryview(buffer) as view:
                line = bytes(view[:end])
            del buffer[: end + 1]
            searched = 0
            yield line.rstrip(b"\r")
        # What was searched once is not searched again: a long line comes in many chunks.
        searched = len(buffer)
        if searched > max_bytes:
            raise AnswerTooLargeError(max_bytes)


def _parse_leniently(payload: bytes) -> Any:
    """Return a message that is not strict JSON, so that the request is known that it answers."""
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError:
        raise ServerLostError("the server sent something else than a message") from None
