"""The sandbox checks of `toolmesh doctor`."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path

import pytest

from services.executor import doctor
from services.executor.adapters.sandbox.gvisor import runsc


def _asked(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "services.executor.doctor", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)


def test_json_and_text_output_agree() -> None:
    ran = _asked("--json")
    results = {result["name"]: result for result in json.loads(ran.stdout)}
    assert set(results) == {"host", "seccomp", "cgroups", "sandbox:bubblewrap", "sandbox:gvisor"}
    assert all(result["advice"] for result in results.values() if result["status"] != "ok")
    assert ran.returncode == int(any(result["status"] == "fail" for result in results.values()))
    for_people = _asked()
    assert for_people.returncode == ran.returncode
    assert all(name in for_people.stdout for name in results)


def test_wrong_arguments_exit_with_2() -> None:
    assert _asked("--yaml").returncode == 2


def test_missing_gvisor_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(runsc, "BUILT", tmp_path / "absent")
    results = doctor.check_gvisor()
    assert (results.status, bool(results.advice)) == ("warn", True)


def test_broken_gvisor_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "runsc"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("TOOLMESH_RUNSC", str(broken))
    assert doctor.check_gvisor().status == "warn"


def test_missing_bubblewrap_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(doctor.BubblewrapSandbox):  # type: ignore[misc, name-defined]
        def unavailable_reason(self) -> str:
            return "user namespaces are switched off"

    monkeypatch.setattr(doctor, "BubblewrapSandbox", Broken)
    assert doctor.check_bubblewrap().status == "fail"
    assert doctor.main([]) == 1


@pytest.mark.parametrize(("mode", "status"), [("preferred", "warn"), ("required", "fail"), ("off", "warn")])
def test_missing_cgroups_are_reported_with_advice(monkeypatch: pytest.MonkeyPatch, mode: str, status: str) -> None:
    monkeypatch.setenv("TOOLMESH_SANDBOX_CGROUPS", mode)
    monkeypatch.setenv("TOOLMESH_SANDBOX_CGROUP_PARENT", "/absent/parent")
    result = doctor.check_cgroups()
    assert (result.status, bool(result.advice)) == (status, True)
    assert "memory: watch" in result.detail


def test_pods_are_checked_where_a_namespace_for_them_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "sandbox:pods" not in {result.name for result in doctor.run_checks()}
    monkeypatch.setenv("TOOLMESH_POD_NAMESPACE", "toolmesh-tools")
    monkeypatch.setenv("TOOLMESH_POD_KUBECONFIG", str(tmp_path / "absent"))
    pods = {result.name: result for result in doctor.run_checks()}["sandbox:pods"]
    assert (pods.status, bool(pods.advice)) == ("warn", True)


@pytest.mark.parametrize("actions", ["", "allow errno"])
def test_missing_seccomp_is_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, actions: str) -> None:
    (tmp_path / "actions").write_text(actions)
    monkeypatch.setattr(doctor, "_ACTIONS", tmp_path / ("actions" if actions else "absent"))
    assert doctor.check_seccomp().status == "fail"


def test_other_systems_have_no_sandboxes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.platform, "system", lambda: "Plan9")  # type: ignore[attr-defined]
    assert [result.status for result in doctor.run_checks()] == ["warn"]


@pytest.mark.parametrize(
    ("version", "released"),
    [
        ("runsc version 0.0~20221219.0", date(2022, 12, 19)),
        ("runsc version release-20240729.0", date(2024, 7, 29)),
        ("runsc version v0.0.0-20260905035102-160fafc42237", date(2026, 9, 5)),
        ("runsc version VERSION_MISSING", None),
        ("runsc version 20229999", None),
    ],
)
def test_the_release_of_gvisor_is_in_its_version(version: str, released: date | None) -> None:
    assert doctor.release_date(version) == released


@pytest.mark.parametrize(("days", "status"), [(30, "ok"), (100, "warn")])
def test_an_old_gvisor_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, days: int, status: str) -> None:
    class Working(doctor.GvisorSandbox):  # type: ignore[misc, name-defined]
        platform = "systrap"

        def unavailable_reason(self) -> str:
            return ""

    released = date.today() - timedelta(days=days)  # noqa: DTZ011
    program = tmp_path / "runsc"
    program.write_text(f"#!/bin/sh\necho runsc version release-{released:%Y%m%d}.0\n")
    program.chmod(0o755)
    monkeypatch.setenv("TOOLMESH_RUNSC", str(program))
    monkeypatch.setattr(doctor, "GvisorSandbox", Working)
    result = doctor.check_gvisor()
    assert (result.status, bool(result.advice)) == (status, status == "warn")
    assert str(program) in result.detail
    assert "platform systrap" in result.detail


def test_a_named_program_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TOOLMESH_RUNSC", str(tmp_path / "absent"))
    result = doctor.check_gvisor()
    assert result.status == "warn"
    assert str(tmp_path / "absent") in result.detail


@pytest.mark.parametrize(("inside", "status"), [(True, "fail"), (False, "ok")])
def test_an_executor_inside_gvisor_is_a_failure(monkeypatch: pytest.MonkeyPatch, inside: bool, status: str) -> None:
    monkeypatch.setattr(doctor, "runs_inside_gvisor", lambda: inside)
    result = doctor.check_host()
    assert (result.status, bool(result.advice)) == (status, inside)
