"""An HTTPS server in a thread with configurable responses."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class HttpsServer:
    """The responses by path (bytes, a status or a handler) and the requested paths."""

    address: str = ""
    documents: dict[str, bytes | int | Callable[[BaseHTTPRequestHandler], None]] = field(default_factory=dict)
    requested: list[str] = field(default_factory=list)


@contextmanager
def serving(pki: Any) -> Iterator[HttpsServer]:
    """Serve with the certificate of a mesh service, which is also valid for localhost."""
    https_server = HttpsServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            https_server.requested.append(self.path)
            answer = https_server.documents.get(self.path, 404)
            if callable(answer):
                answer(self)
                return
            status, body = (answer, b"") if isinstance(answer, int) else (200, answer)
            self.send_response(status)
            if status in (301, 302):
                self.send_header("location", f"{https_server.address}/elsewhere")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *arguments: Any) -> None:
            """Suppress the request log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    identity = pki.of("gateway")
    context.load_cert_chain(identity.cert, identity.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    https_server.address = f"https://localhost:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield https_server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
