"""The caller of a job as the client that an MCP server sees: hears of progress, reads log lines and is asked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from libs.common.errors import MeshError
from libs.common.json.jsonio import dump, parse_object
from services.executor.adapters.runners.worker.answer import printable, printable_line
from services.executor.adapters.upstreams.mcp.server_time import ServerTime
from services.executor.adapters.upstreams.mcp.transport import Requests, RpcError
from services.executor.domain.run_channel import ClientRequest, InputQuestion, ProgressReport, RunChannel

MAX_REQUESTS, MAX_REQUEST_BYTES = 8, 64 * 1024
_MAX_KEY, _MAX_TEXT, _MAX_LINE = 64, 500, 4096
_METHOD_NOT_FOUND, _INVALID_PARAMS = -32601, -32602
_ASKED_WITH = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
_SEVERITIES = {"debug": "debug", "info": "info", "notice": "info", "warning": "warning"}
_SAMPLING = "The server asks your model to complete a conversation."
_ROOTS = "The server asks which folders you work in."


class CallerClient:
    """Implements CallClient with the channel of a run."""

    def __init__(self, channel: RunChannel, capabilities: Collection[str], server_time: ServerTime) -> None:
        """`server_time` stands still while the caller is asked."""
        self._channel, self._capabilities, self._server_time = channel, frozenset(capabilities), server_time

    @property
    def capabilities(self) -> dict[str, Any]:
        """Implement `CallClient.capabilities`."""
        return {name: {} for name in sorted(self._capabilities)}

    def progress(self, params: Mapping[str, Any]) -> None:
        """Implement `CallClient.progress`."""
        self._channel.progress(_progress(params))

    def log(self, params: Mapping[str, Any]) -> None:
        """Implement `CallClient.log`."""
        data, level = params.get("data"), params.get("level")
        text = data if isinstance(data, str) else dump(data).decode()
        severity = _SEVERITIES.get(level, "error") if isinstance(level, str) else "info"
        self._channel.log(severity, printable_line(text[:_MAX_LINE]))

    def notified(self, method: str, params: Mapping[str, Any]) -> None:
        """Implement `CallClient.notified`: nothing else is for the caller of a tool."""

    async def answer(self, requests: Requests) -> dict[str, Any]:
        """Implement `CallClient.answer`. Raises the errors of the channel, too."""
        asked = [self._checked(key, request) for key, request in requests.items()]
        if not asked or len(asked) > MAX_REQUESTS:
            raise RpcError(_INVALID_PARAMS, f"a client is asked for 1 to {MAX_REQUESTS} things at once")
        with self._server_time.waiting():
            answer = parse_object(await self._channel.ask(_question(asked)))
        return {each.key: answer[each.key] for each in asked}

    def _checked(self, key: Any, request: Any) -> ClientRequest:
        fields = request if isinstance(request, dict) else {}
        method, params = fields.get("method"), fields.get("params") or {}
        if not isinstance(method, str) or _ASKED_WITH.get(method) not in self._capabilities:
            raise RpcError(_METHOD_NOT_FOUND, "the caller cannot be asked for this")
        try:
            encoded = dump(params)
        except (MeshError, ValueError, TypeError):
            encoded = b""
        if not isinstance(key, str) or not 0 < len(key) <= _MAX_KEY or not 0 < len(encoded) <= MAX_REQUEST_BYTES:
            raise RpcError(_INVALID_PARAMS, f"a request to the caller has at most {MAX_REQUEST_BYTES} bytes")
        return ClientRequest(key, method, encoded)


def _question(asked: list[ClientRequest]) -> InputQuestion:
    keys = [each.key for each in asked]
    schema = {
        "type": "object",
        "properties": {key: {"type": "object"} for key in keys},
        "required": keys,
        "additionalProperties": False,
    }
    return InputQuestion(" ".join(_message(each) for each in asked), dump(schema), tuple(asked))


def _message(request: ClientRequest) -> str:
    """Return what a person reads of a request."""
    if request.method == "sampling/createMessage":
        return _SAMPLING
    if request.method == "roots/list":
        return _ROOTS
    text = parse_object(request.params).get("message")
    return printable(text)[:_MAX_TEXT] if isinstance(text, str) else "The server asks for input."


def _progress(params: Mapping[str, Any]) -> ProgressReport:
    done, total, message = params.get("progress"), params.get("total"), params.get("message")
    text = printable(message)[:_MAX_TEXT] if isinstance(message, str) else ""
    numbers = [value for value in (done, total) if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) == 2 and 0 <= numbers[0] <= numbers[1] and numbers[1] > 0:
        return ProgressReport(message=text, percent=100.0 * numbers[0] / numbers[1])
    return ProgressReport(message=text)
