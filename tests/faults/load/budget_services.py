"""Services whose answers are as expensive as possible: an HTTP endpoint and an MCP server, both connected to a mesh."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from services.executor.adapters.sandbox.rootfs import interpreter_path
from tests.harness.mesh import Mesh, cli
from tests.harness.servers import mcp_server
from tests.harness.servers.mcp_server import tool as definition

TOOLS = ("slow.read", "fix.file")
"""The tools that answer with a prepared document. Their argument `text` is its name."""
_OUTPUT = {"type": "object"}


def prepare(folder: Path, answers: Mapping[str, bytes]) -> None:
    """Write the answers that the services give."""
    for name, answer in answers.items():
        (folder / name).write_bytes(answer)


@contextmanager
def connected(mesh: Mesh, folder: Path) -> Iterator[None]:
    """Connect both services, which answer with the files of the folder."""
    folder.chmod(0o755)
    with _serving(folder) as port:
        manifest = folder / "manifest.json"
        manifest.write_text(json.dumps(_manifest(port)))
        cli("tools", "register", str(manifest), state=mesh.state)
        _connect_mcp(mesh, folder)
        yield


def _connect_mcp(mesh: Mesh, folder: Path) -> None:
    program, tools = folder / "server.py", folder / "tools.json"
    program.write_bytes(Path(mcp_server.__file__).read_bytes())
    tools.write_text(json.dumps([definition("file", outputSchema=_OUTPUT)]))
    server = [interpreter_path(), "-I", "-S", "-B", str(program), str(tools)]
    cli("connect", "mcp", "--id", "fix", "--mount", str(folder), "--json", "--", *server, state=mesh.state)


@contextmanager
def _serving(folder: Path) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, folder))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()


class _Files(BaseHTTPRequestHandler):
    def __init__(self, folder: Path, *arguments: Any) -> None:
        self._folder = folder
        super().__init__(*arguments)

    def do_GET(self) -> None:
        content = (self._folder / self.path.rpartition("/")[2]).read_bytes()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


def _manifest(port: int) -> dict[str, Any]:
    return {
        "schema_version": "0.2.0",
        "tool_id": "read",
        "namespace": "slow",
        "version": "1.0.0",
        "title": "Read an answer",
        "description": "Reads an answer that was prepared for a test.",
        "provider": "slow",
        "kind": "custom",
        "protocol": "custom",
        "input": {
            "schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        },
        "output": {"schema": _OUTPUT},
        "execution": {
            "runner": "http",
            "timeout_class": "standard",
            "access_tier": "network",
            "network_policy": {"allowed_domains": ["127.0.0.1"], "allowed_ports": [port]},
            "http": {"method": "get", "url": f"http://127.0.0.1:{port}/{{text}}"},
        },
        "permission": {"required_scopes": ["tools:call"]},
        "mutation_class": "read_only",
        "observability": {"audit_detail": "summary"},
    }
