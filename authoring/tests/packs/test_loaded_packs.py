"""What executors have loaded, and where a pack is put."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from authoring.packs.init_pack import init_pack
from authoring.packs.loaded_packs import NotLoadedError, folder_for, loaded_digests, wait_until_loaded
from services.executor.adapters.runners.packs.pack_metrics import export_packs
from services.executor.adapters.runners.packs.packs import Pack


class Metrics(BaseHTTPRequestHandler):
    """Serves the metrics of this process, as an executor does."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(generate_latest())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def runtime() -> Iterator[dict[str, Any]]:
    with HTTPServer(("127.0.0.1", 0), Metrics) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_port}"
        yield {"services": [{"name": name, "ops": address} for name in ("executor", "executor-2", "registry")]}
        server.shutdown()
    export_packs([])


def test_every_executor_is_asked(runtime: dict[str, Any]) -> None:
    export_packs([Pack("kit", "sha256:1", Path("/copies/0"), frozenset(), frozenset())])
    assert loaded_digests(runtime, "kit") == ["sha256:1", "sha256:1"]
    assert loaded_digests(runtime, "other") == ["", ""]
    wait_until_loaded(runtime, "kit", "sha256:1", 0)
    with pytest.raises(NotLoadedError):
        wait_until_loaded(runtime, "kit", "sha256:2", 0)


def test_an_executor_that_is_away_has_nothing() -> None:
    assert loaded_digests({"services": [{"name": "executor", "ops": "127.0.0.1:1"}]}, "kit") == [""]


def test_a_pack_stays_where_executors_read_it(tmp_path: Path) -> None:
    for path in ("watched/greeter", "mine/greeter", "mine/other"):
        init_pack(tmp_path / path)
    folders = [str(tmp_path / "watched"), str(tmp_path / "own")]
    assert folder_for(tmp_path / "watched" / "greeter", folders) is None
    assert folder_for(tmp_path / "mine" / "other", folders) == tmp_path / "own"
    with pytest.raises(NotLoadedError):
        folder_for(tmp_path / "mine" / "greeter", folders)
