"""A server elsewhere on the network: HTTPS, and whatever documents and manners a test gives it."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Elsewhere:
    """What the server answers by path: bytes, a status, or as it pleases. Counts the requests."""

    address: str = ""
    documents: dict[str, bytes | int | Callable[[BaseHTTPRequestHandler], None]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)


@contextmanager
def serving(pki: Any) -> Iterator[Elsewhere]:
    """Serve with the certificate of a mesh service, which also is one for localhost."""
    elsewhere = Elsewhere()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            elsewhere.asked.append(self.path)
            answer = elsewhere.documents.get(self.path, 404)
            if callable(answer):
                answer(self)
                return
            status, body = (answer, b"") if isinstance(answer, int) else (200, answer)
            self.send_response(status)
            if status in (301, 302):
                self.send_header("location", f"{elsewhere.address}/elsewhere")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            """Keep the tests' output clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    identity = pki.of("gateway")
    context.load_cert_chain(identity.cert, identity.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    elsewhere.address = f"https://localhost:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield elsewhere
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
