"""An MCP server over Streamable HTTP, revision 2026-07-28, with the fixtures of the suite."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.conformance.upstream.prompts import PROMPTS, get_prompt
from tests.conformance.upstream.request import InputRequired, Request, RequestError
from tests.conformance.upstream.resources import RESOURCES, TEMPLATES, read_resource
from tests.conformance.upstream.tools import Tools
from tests.conformance.upstream.watches import Watches

_SERVER = {"name": "conformance-fixtures", "version": "1.0"}
_CAPABILITIES: dict[str, Any] = {
    "tools": {"listChanged": True},
    "prompts": {},
    "resources": {"subscribe": True},
    "completions": {},
    "logging": {},
}


class FixtureServer(ThreadingHTTPServer):
    """Serves the fixtures at `/mcp`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.tools = Tools()
        self.authorization = ""
        """Of the last request."""
        self.watches = Watches()

    @property
    def url(self) -> str:
        """Where executors connect to."""
        return f"http://127.0.0.1:{self.server_port}/mcp"

    def answer(self, request: Request) -> Iterator[dict[str, Any]]:
        """Return notifications, then the response."""
        try:
            result = yield from self._result(request)
        except RequestError as error:
            failure = {"code": error.code, "message": str(error), "data": error.data}
            yield {"jsonrpc": "2.0", "id": request.id, "error": failure}
        except InputRequired as required:
            yield {"jsonrpc": "2.0", "id": request.id, "result": required.result}
        else:
            complete = {"resultType": "complete", **result}
            yield {"jsonrpc": "2.0", "id": request.id, "result": complete}

    def _result(self, request: Request) -> Any:
        params = request.params
        if request.method == "server/discover":
            return {
                "supportedVersions": ["2026-07-28"],
                "capabilities": _CAPABILITIES,
                "_meta": {"io.modelcontextprotocol/serverInfo": _SERVER},
            }
        if request.method == "tools/call":
            return (yield from self.tools.call(request))
        if request.method == "subscriptions/listen":
            return (yield from self.watches.listen(request))
        listings = {
            "tools/list": {"tools": self.tools.listed()},
            "prompts/list": {"prompts": PROMPTS},
            "resources/list": {"resources": RESOURCES},
            "resources/templates/list": {"resourceTemplates": TEMPLATES},
        }
        if request.method in listings:
            return listings[request.method]
        if request.method == "prompts/get":
            return get_prompt(request)
        if request.method == "resources/read":
            return read_resource(params["uri"])
        if request.method == "completion/complete":
            values = [word for word in ("paris", "park", "party") if word.startswith(params["argument"]["value"])]
            return {"completion": {"values": values, "total": len(values), "hasMore": False}}
        raise RequestError(-32601, "unknown method")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FixtureServer

    def do_POST(self) -> None:
        self.server.authorization = self.headers.get("authorization", "")
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "id" not in message:
            self._send(202, b"")
            return
        answers = self.server.answer(Request(message["id"], message["method"], message.get("params", {})))
        first = next(answers)
        if "method" not in first:
            status = 404 if first.get("error", {}).get("code") == -32601 else 200
            self._send(status, json.dumps(first).encode())
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            self._event(first)
            for each in answers:
                self._event(each)
        except OSError:
            answers.close()  # type: ignore[attr-defined]

    def _event(self, message: dict[str, Any]) -> None:
        self.wfile.write(b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n")
        self.wfile.flush()

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""
