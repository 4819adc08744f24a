"""A package index on the loopback interface, of a folder of wheels."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from services.executor.tests.wheels import make_wheel


def add_wheel(folder: Path, file_name: str, *, requires: str = "") -> None:
    """Add a wheel with its metadata to the index."""
    name, version, *_, tags = file_name.removesuffix(".whl").split("-", 2)
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Python: >=3.11\n"
    metadata += f"Requires-Dist: {requires}\n" if requires else ""
    about = f"{name}-{version}.dist-info"
    members = {
        f"{name}.py": f"TAGS = {tags!r}",
        f"{about}/METADATA": metadata,
        f"{about}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tags}\n",
        f"{about}/RECORD": "",
    }
    make_wheel(folder, file_name, members)


@contextmanager
def serve_index(folder: Path) -> Iterator[str]:
    """Serve the wheels of a folder, and yield the address of the index."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            place = self.path.strip("/").split("/")
            body = _page(folder, place[-1]) if place[0] == "simple" else (folder / place[-1]).read_bytes()
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", "text/html" if place[0] == "simple" else "application/octet-stream")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Keep the output of the tests clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/simple/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _page(folder: Path, name: str) -> bytes:
    links = [
        f'<a href="/files/{path.name}#sha256={hashlib.sha256(path.read_bytes()).hexdigest()}">{path.name}</a>'
        for path in sorted(folder.glob(f"{name}-*.whl"))
    ]
    return f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode() if links else b""
