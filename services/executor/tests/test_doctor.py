"""The sandbox checks of `toolmesh doctor`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from services.executor import doctor
from services.executor.adapters.sandbox.gvisor import runsc
from services.executor.adapters.sandbox.launcher.cgroup_hierarchy import CgroupHierarchy


def _asked(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "services.executor.doctor", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)


def test_json_and_text_output_agree() -> None:
    ran = _asked("--json")
    results = {result["name"]: result for result in json.loads(ran.stdout)}
    assert set(results) == {"seccomp", "cgroups", "sandbox:bubblewrap", "sandbox:gvisor"}
    assert all(result["advice"] for result in results.values() if result["status"] != "ok")
    assert ran.returncode == int(any(result["status"] == "fail" for result in results.values()))
    for_people = _asked()
    assert for_people.returncode == ran.returncode
    assert all(name in for_people.stdout for name in results)


def test_wrong_arguments_exit_with_2() -> None:
    assert _asked("--yaml").returncode == 2


def test_missing_gvisor_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(runsc, "FETCHED", tmp_path / "absent")
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


def test_missing_cgroups_are_a_warning_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.CgroupHierarchy, "prepare", lambda instance: CgroupHierarchy({}, []))  # type: ignore[attr-defined]
    results = doctor.check_cgroups()
    assert (results.status, bool(results.advice)) == ("warn", True)


@pytest.mark.parametrize("actions", ["", "allow errno"])
def test_missing_seccomp_is_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, actions: str) -> None:
    (tmp_path / "actions").write_text(actions)
    monkeypatch.setattr(doctor, "_ACTIONS", tmp_path / ("actions" if actions else "absent"))
    assert doctor.check_seccomp().status == "fail"


def test_other_systems_have_no_sandboxes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.platform, "system", lambda: "Plan9")  # type: ignore[attr-defined]
    assert [result.status for result in doctor.run_checks()] == ["warn"]
