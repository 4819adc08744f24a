"""The operator port of a process: liveness, readiness and metrics over plain HTTP."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from libs.common.runtime.settings import Address


class OpsServer:
    """Serves /livez, /readyz and /metrics from a thread, so that a busy event loop still appears alive."""

    def __init__(self, listen: Address, ready: Callable[[], bool], detail: Callable[[], str] = str) -> None:
        """`detail` adds lines to /readyz, for people; only the status decides."""
        self._http = _Server(listen, _handler(ready, detail))
        # A short poll interval: stopping waits for the next poll.
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), name="ops", daemon=True)

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return int(self._http.server_address[1])

    def start(self) -> None:
        """Start serving."""
        self._thread.start()

    def stop(self) -> None:
        """Stop serving."""
        self._http.shutdown()
        self._http.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, listen: Address, handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
        super().__init__((listen.host.strip("[]"), listen.port), handler)


def _handler(ready: Callable[[], bool], detail: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == "/livez":
                self._answer(200, b"ok\n")
            elif self.path == "/readyz":
                up = ready()
                word = "ready" if up else "not ready"
                self._answer(200 if up else 503, f"{word}\n{detail()}".encode())
            elif self.path == "/metrics":
                self._answer(200, generate_latest(), CONTENT_TYPE_LATEST)
            else:
                self._answer(404, b"try /livez, /readyz or /metrics\n")

        def _answer(self, status: int, body: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
            self.send_response(status)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the name is the base class's)
            """Log nothing: probes come every second."""

    return Handler
