"""The transport port of the MCP client, and how requests fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from libs.common.errors import MeshError
from libs.common.json.jsonio import parse

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


def result_of(payload: bytes, max_bytes: int) -> dict[str, Any]:
    """Return the result of a response. Raises RpcError, UnreadableAnswerError, and ServerLostError for no response."""
    try:
        message = parse(payload, max_bytes=max_bytes)
    except MeshError:
        raise UnreadableAnswerError from None
    if not isinstance(message, dict):
        raise ServerLostError("the server sent something else than a message")
    error, result = message.get("error"), message.get("result")
    if isinstance(error, dict):
        code, text = error.get("code"), error.get("message")
        raise RpcError(code if type(code) is int else 0, text if isinstance(text, str) else "")
    if not isinstance(result, dict):
        raise ServerLostError("the server sent a response without a result")
    return result
