"""A REST server with an OpenAPI document: it answers with the request that it got."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TEXT = {"type": "string"}
TEXTS = {"type": "array", "items": TEXT}


def parameter(name: str, place: str, schema: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "schema": schema, "required": place == "path", **fields}


def document(*, summary: str = "Finds a shelf") -> dict[str, Any]:
    """Return a document with every place of a parameter, a body, a file and a security scheme."""
    answer = {
        "200": {"description": "ok", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Echo"}}}}
    }
    shelf_parameters = [
        parameter("shelf-id", "path", {"type": "integer"}),
        parameter("tag", "query", TEXTS),
        parameter("colour", "query", TEXTS, explode=False),
        parameter("size", "query", TEXTS, style="pipeDelimited", explode=False),
        parameter("X-Lang", "header", TEXT),
        parameter("X-Parts", "header", TEXTS),
        parameter("filter", "query", {"type": "object"}, style="deepObject"),
    ]
    book = {
        "type": "object",
        "properties": {
            "id": {"type": "integer", "readOnly": True},
            "title": {"type": "string", "minLength": 1, "nullable": True},
            "sequel": {"$ref": "#/components/schemas/Book"},
        },
        "required": ["id", "title"],
    }
    json_book = {"application/json": {"schema": {"$ref": "#/components/schemas/Book"}}}
    upload = {"multipart/form-data": {"schema": {"type": "object"}}}
    return {
        "openapi": "3.0.3",
        "info": {"title": "Library", "version": "7"},
        "servers": [{"url": "/v1"}],
        "paths": {
            "/shelves/{shelf-id}": {
                "parameters": shelf_parameters,
                "get": {"operationId": "shelves/get", "summary": summary, "responses": answer},
            },
            "/shelves/{shelf-id}/books": {
                "parameters": [shelf_parameters[0]],
                "post": {
                    "operationId": "books/add",
                    "summary": "Adds a book",
                    "requestBody": {"required": True, "content": json_book},
                    "security": [{"token": []}],
                    "responses": answer,
                },
                "put": {
                    "operationId": "books/upload",
                    "summary": "Uploads the scan of a book",
                    "requestBody": {"content": upload},
                    "responses": answer,
                },
            },
            "/search": {
                "post": {
                    "operationId": "search",
                    "summary": "Searches for books",
                    "requestBody": {"required": True, "content": json_book},
                    "security": [{"token": []}],
                    "responses": answer,
                }
            },
        },
        "components": {
            "schemas": {"Book": book, "Echo": {"type": "object", "required": ["method", "path"]}},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


class RestServer(ThreadingHTTPServer):
    """Serves the document at `/openapi.json`, and answers every other request with what it got."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Requests)
        self.document = document()
        self.seen: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Requests(BaseHTTPRequestHandler):
    server: RestServer

    def do_GET(self) -> None:
        if self.path == "/openapi.json":
            self._answer(self.server.document)
            return
        self._echo()

    def do_POST(self) -> None:
        self._echo()

    def _echo(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        parts = urlsplit(self.path)
        request = {
            "method": self.command,
            "path": parts.path,
            "query": parse_qs(parts.query),
            "headers": {name: value for name, value in self.headers.items() if name.startswith("x-")},
            "authorized": self.headers.get("authorization", ""),
            "body": json.loads(body or b"null"),
        }
        self.server.seen.append(request)
        self._answer(request)

    def _answer(self, value: Any) -> None:
        content = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def rest_server() -> Iterator[RestServer]:
    """Run the server in threads."""
    server = RestServer()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
