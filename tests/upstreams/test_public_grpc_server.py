"""A gRPC server of another implementation, pinned by hash: described by its reflection, and called."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from services.executor.tests.adapters.runners.upstreams.test_grpc import Upstreams
from services.executor.tests.samples import a_tool
from tests.harness.stores import free_port, wait_until

pytestmark = [pytest.mark.upstreams, pytest.mark.timeout(1200)]
HERE = Path(__file__).parent
SECONDS = 240.0


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Install grpclib by its lock file, and serve with it."""
    packages, chosen = tmp_path / "packages", free_port()
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:", "--no-deps", "--require-hashes")
    subprocess.run([*pip, "--target", str(packages), "-r", str(HERE / "grpclib.lock")], check=True)
    process = subprocess.Popen([sys.executable, str(HERE / "grpclib_server.py"), str(packages), str(chosen)])
    try:
        wait_until(lambda: process.poll() is not None or listens(chosen), "the server", SECONDS)
        assert process.poll() is None
        yield chosen
    finally:
        process.terminate()
        process.wait()


def listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=SECONDS):
        return True
    return False


async def test_a_server_of_another_implementation_is_described_and_called(port: int, tmp_path: Path) -> None:
    upstreams = Upstreams(tmp_path)
    config = upstreams.add(port)
    server = upstreams.servers.grpc_server(config)
    description = await server.recent_description()
    assert description.protocol == "gRPC, reflection v1"
    results = {}
    for method in ("Check", "Watch"):
        name = f"grpc.health.v1.Health/{method}"
        entry_point = json.dumps({"upstream": "shop", "tool": name, "definition": description.digests[name]})
        tool = a_tool(qualified=f"shop.{method.lower()}", runner="grpc", entry_point=entry_point)
        results[method] = await upstreams.value(tool, service="orders")
    await server.close()
    await upstreams.close()
    assert results["Check"] == {"status": "SERVING"}
    assert results["Watch"] == {"messages": [{"status": "SERVING"}] * 3}
