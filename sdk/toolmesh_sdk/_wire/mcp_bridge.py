"""Carries MCP messages between standard input and output and the mesh's HTTP endpoint.

For hosts that only start processes. The bridge knows HTTP and no methods: what a message means, the gateway decides.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from toolmesh_sdk._wire.proof import ProofKey

_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_MAX_CONCURRENT = 32
# Longer than the longest call of the mesh.
_TIMEOUT_SECONDS = 330.0
_RECONNECT_SECONDS = 2.0
_UNREACHABLE, _REFUSED = -32000, -32001

Message = dict[str, Any]


class McpBridge:
    """Sends each message as an HTTP request of its own, several at a time, and writes what comes back."""

    def __init__(
        self,
        url: str,
        token: Callable[[], str],
        tls: ssl.SSLContext | None,
        output: TextIO,
        proof_key: ProofKey | None = None,
    ) -> None:
        """`proof_key` proves possession of a token that is bound to it."""
        self._url, self._parts, self._proof_key = url, urlsplit(url), proof_key
        self._token, self._tls, self._output = token, tls, output
        self._writing = threading.Lock()
        self._session = self._version = ""
        self._open: dict[Any, http.client.HTTPConnection] = {}
        self._ended = threading.Event()

    def run(self, lines: Iterable[str]) -> None:
        """Carry messages until the input ends, then end the session."""
        with ThreadPoolExecutor(_MAX_CONCURRENT, thread_name_prefix="mcp") as pool:
            for line in lines:
                if line.strip():
                    self._take(line, pool)
        self._ended.set()
        if self._session:
            self._request("DELETE", b"", {}).close()

    def _take(self, line: str, pool: ThreadPoolExecutor) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            self._write(_failure(None, -32700, "the line is not JSON"))
            return
        if not isinstance(message, dict):
            self._write(_failure(None, -32600, "the line is not one message"))
            return
        if message.get("method") == "initialize":
            # The answer names the session that every later message belongs to.
            self._carry(message)
            threading.Thread(target=self._listen, daemon=True, name="mcp-listen").start()
        elif message.get("method") == "notifications/cancelled" and not self._session:
            self._abandon((message.get("params") or {}).get("requestId"))
        else:
            pool.submit(self._carry, message)

    def _carry(self, message: Message) -> None:
        request_id = message.get("id")
        try:
            connection = self._request("POST", json.dumps(message).encode(), self._headers(message), request_id)
            self._forward(connection.getresponse(), request_id)
        except (OSError, http.client.HTTPException, ValueError) as error:
            if request_id is not None:
                self._write(_failure(request_id, _UNREACHABLE, f"the mesh did not answer ({type(error).__name__})"))
        finally:
            closed = self._open.pop(request_id, None)
            if closed is not None:
                closed.close()

    def _forward(self, response: http.client.HTTPResponse, request_id: Any) -> None:
        self._session = response.getheader("mcp-session-id") or self._session
        if "text/event-stream" in (response.getheader("content-type") or ""):
            for event in _events(response):
                self._write(event)
            return
        body = response.read()
        if body.startswith(b"{"):
            answer = json.loads(body)
            if "jsonrpc" in answer:
                if answer.get("id") is None:
                    answer["id"] = request_id
                self._version = (answer.get("result") or {}).get("protocolVersion") or self._version
                if request_id is not None:
                    self._write(answer)
                return
        if request_id is not None:
            self._write(_failure(request_id, _REFUSED, f"the mesh answered with status {response.status}"))

    def _listen(self) -> None:
        """Write what the gateway says without being asked; reconnect when the stream ends."""
        while self._session and not self._ended.wait(_RECONNECT_SECONDS):
            try:
                response = self._request("GET", b"", {"accept": "text/event-stream"}).getresponse()
                if response.status != 200:
                    return
                for event in _events(response):
                    self._write(event)
            except (OSError, http.client.HTTPException):
                time.sleep(_RECONNECT_SECONDS)

    def _abandon(self, request_id: Any) -> None:
        """Close the connection of a request: a stateless revision knows no other way to cancel."""
        connection = self._open.get(request_id) if isinstance(request_id, str | int) else None
        if connection is not None and connection.sock is not None:
            connection.sock.close()

    def _request(
        self, verb: str, body: bytes, headers: dict[str, str], request_id: Any = None
    ) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=_TIMEOUT_SECONDS, context=self._tls
            )
        else:
            connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_SECONDS)
        if isinstance(request_id, str | int):
            self._open[request_id] = connection
        sent = {**self._authorization(verb), **headers}
        if self._session:
            sent["mcp-session-id"] = self._session
        if self._version:
            sent.setdefault("mcp-protocol-version", self._version)
        connection.request(verb, self._parts.path, body, sent)
        return connection

    def _authorization(self, verb: str) -> dict[str, str]:
        token = self._token()
        if self._proof_key is None:
            return {"authorization": f"Bearer {token}"}
        return {"authorization": f"DPoP {token}", "dpop": self._proof_key.proof(token, self._url, verb)}

    def _headers(self, message: Message) -> dict[str, str]:
        """Return the headers of a message; those of a stateless one repeat parts of it."""
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        params = message.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        version = meta.get(_VERSION_KEY) if isinstance(meta, dict) else None
        if isinstance(version, str) and isinstance(params, dict):
            headers |= {"mcp-protocol-version": version, "mcp-method": str(message.get("method"))}
            name = params.get(_NAMED_BY.get(str(message.get("method")), ""))
            if isinstance(name, str):
                headers["mcp-name"] = _encoded(name)
        return headers

    def _write(self, message: Message) -> None:
        line = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
        with self._writing:
            self._output.write(line + "\n")
            self._output.flush()


def _events(response: http.client.HTTPResponse) -> Iterator[Message]:
    for line in response:
        if line.startswith(b"data: "):
            yield json.loads(line[6:])


def _failure(request_id: Any, code: int, text: str) -> Message:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text}}


def _encoded(value: str) -> str:
    plain = value.isascii() and value.isprintable() and value == value.strip() and not value.startswith("=?base64?")
    return value if plain else f"=?base64?{base64.b64encode(value.encode()).decode()}?="
