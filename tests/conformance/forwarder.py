"""Stands in front of the mesh for the conformance suite, which cannot send a token: adds one to every request.

The mesh itself stays closed. The forwarder's own name in `Host` and `Origin` becomes the edge's; any other stays, so
that the mesh still sees who is not invited.
"""

from __future__ import annotations

import select
import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

_OWN_HEADERS = {"connection", "transfer-encoding", "content-length", "authorization"}


class Forwarder(ThreadingHTTPServer):
    """Forwards to `url` with a token."""

    daemon_threads = True

    def __init__(self, url: str, token: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.edge, self.token = urlsplit(url), token

    @property
    def url(self) -> str:
        """Where the suite connects to."""
        return f"http://localhost:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Forwarder

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        kept = [(name, value) for name, value in self.headers.items() if name.lower() not in _OWN_HEADERS]
        headers = [f"{name}: {self._renamed(value)}" for name, value in kept]
        own = [f"authorization: Bearer {self.server.token}", "connection: close", f"content-length: {len(body)}"]
        head = "\r\n".join([f"{self.command} {self.path} HTTP/1.1", *headers, *own, "", ""])
        edge = self.server.edge
        with socket.create_connection((edge.hostname or "", edge.port or 80)) as upstream:
            upstream.sendall(head.encode("latin-1") + body)
            self._copy(upstream)
        self.close_connection = True

    do_GET = do_DELETE = do_OPTIONS = do_POST  # noqa: N815  (names that the base class calls)

    def _copy(self, upstream: socket.socket) -> None:
        """Copy the response until it ends. A client that leaves ends it, and the mesh notices that."""
        while True:
            readable, _, _ = select.select([self.connection, upstream], [], [])
            if self.connection in readable or not (piece := upstream.recv(65536)):
                return
            self.connection.sendall(piece)

    def _renamed(self, value: str) -> str:
        for own in (f"localhost:{self.server.server_port}", f"127.0.0.1:{self.server.server_port}"):
            if value in (own, f"http://{own}"):
                return value.replace(own, self.server.edge.netloc)
        return value

    def log_message(self, *args: Any) -> None:
        """Say nothing."""
