"""The transport port of the MCP client, how messages are read, and how requests fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from libs.common.errors import MeshError
from libs.common.json.jsonio import parse, refuse_many_values
from services.executor.adapters.runners.worker.frames import MAX_VALUES

Params = dict[str, Any]
Requests = Mapping[str, Any]
"""Requests of a server to its client, by key: each an object with `method` and `params`."""
_ONLY = "request"
_METHOD_NOT_FOUND, _NOT_ANSWERED = -32601, -32000


class ServerLostError(Exception):
    """The server ended, closed the connection or broke the protocol. The text is the executor's own."""


class CredentialRefusedError(ServerLostError):
    """The server does not accept a credential. The request was not served."""

    def __init__(self, name: str, status: int) -> None:
        super().__init__(f"the server refused the credential secret://{name} with HTTP status {status}")
        self.name, self.status = name, status


class RateLimitedError(ServerLostError):
    """The server limits the rate of requests. It did not serve this one."""

    def __init__(self, retry_after: float | None) -> None:
        """`retry_after` is the seconds after which it takes requests again; None if it does not say."""
        super().__init__("the server limits the rate of requests")
        self.retry_after = retry_after


class AnswerTooLargeError(Exception):
    """An answer has more bytes than the limit."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit


class UnreadableAnswerError(Exception):
    """An answer is not strict JSON, such as a number that no double holds."""


class RpcError(Exception):
    """The server answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


class CallClient(Protocol):
    """The client of one call, as its server sees it: the caller, who hears of progress and can be asked."""

    @property
    def capabilities(self) -> dict[str, Any]:
        """What the caller can be asked for, as the capabilities of a client."""
        ...

    def progress(self, params: Mapping[str, Any]) -> None:
        """Take the parameters of a progress notification."""
        ...

    def log(self, params: Mapping[str, Any]) -> None:
        """Take the parameters of a log notification."""
        ...

    def notified(self, method: str, params: Mapping[str, Any]) -> None:
        """Take any other notification."""
        ...

    async def answer(self, requests: Requests) -> dict[str, Any]:
        """Return the result of each request by its key. Raises RpcError for what the caller cannot be asked."""
        ...


class Transport(Protocol):
    """Carries JSON-RPC messages to one server."""

    async def request(self, method: str, params: Params, client: CallClient | None = None) -> dict[str, Any]:
        """Return the result of a request.

        Raises RpcError, ServerLostError, AnswerTooLargeError or UnreadableAnswerError.

        It has no deadline of its own: the caller cancels it, and the server is then asked to stop.
        """
        ...

    async def notify(self, method: str, params: Params) -> None:
        """Send a notification. Raises ServerLostError."""
        ...

    async def listen(self, client: CallClient, opened: asyncio.Event) -> None:
        """Hand over what the server sends beside its answers, until it ends that. Sets `opened` once it may send.

        Raises ServerLostError at the end, and where the server sends nothing.
        """
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
            data = error.get("data")
            raise RpcError(code if type(code) is int else 0, text if isinstance(text, str) else "", data)
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


def hand_over(client: CallClient, method: Any, params: Any) -> None:
    """Hand a notification to the client of a call; one without parameters says nothing to it."""
    if not isinstance(params, dict):
        return
    if method == "notifications/progress":
        client.progress(params)
    elif method == "notifications/message":
        client.log(params)
    elif isinstance(method, str):
        client.notified(method, params)


async def answer_to(client: CallClient | None, method: Any, params: Any) -> dict[str, Any]:
    """Return the answer to one request of a server, as the members of a response. Without a client none is served
    but `ping`."""
    if method == "ping":
        return {"result": {}}
    if client is None:
        return {"error": {"code": _METHOD_NOT_FOUND, "message": "this client has no such method"}}
    try:
        answers = await client.answer({_ONLY: {"method": method, "params": params or {}}})
    except RpcError as error:
        return {"error": {"code": error.code, "message": error.message}}
    except MeshError as error:
        return {"error": {"code": _NOT_ANSWERED, "message": error.message}}
    return {"result": answers[_ONLY]}


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
