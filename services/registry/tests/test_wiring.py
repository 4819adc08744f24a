"""The registry as a separate process."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from tests.harness.stores import free_port, wait_until


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def test_the_process_migrates_serves_and_stops_gracefully(
    process_environment: Callable[[str], dict[str, str]],
    database: Callable[[str], str],
    valkey_url: str,
    repository: Path,
) -> None:
    """The process becomes ready without authz: keys are fetched with the first token."""
    ops = free_port()
    environment = {
        **process_environment("registry"),
        "TOOLMESH_OPS_LISTEN": f"127.0.0.1:{ops}",
        "TOOLMESH_DATABASE_URL": database("registry"),
        "TOOLMESH_REDIS_URL": valkey_url,
        "TOOLMESH_AUTHZ_ADDRESS": f"127.0.0.1:{free_port()}",
    }
    command = [sys.executable, "-m", "services.registry"]
    with subprocess.Popen(command, cwd=repository, env=environment, stdout=subprocess.PIPE) as process:
        try:
            wait_until(lambda: _ready(ops) or process.poll() is not None, "the start")
            assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()


def test_the_process_does_not_start_without_settings(repository: Path) -> None:
    command = [sys.executable, "-m", "services.registry"]
    ended = subprocess.run(command, cwd=repository, env={}, capture_output=True, timeout=60, check=False)
    assert ended.returncode == 2
