"""What the executor says about this machine's sandboxes."""

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
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_program_reads_what_people_read() -> None:
    ran = _asked("--json")
    found = {finding["name"]: finding for finding in json.loads(ran.stdout)}
    assert set(found) == {"seccomp", "cgroups", "sandbox:bubblewrap", "sandbox:gvisor"}
    assert all(finding["advice"] for finding in found.values() if finding["status"] != "ok")
    assert ran.returncode == int(any(finding["status"] == "fail" for finding in found.values()))
    for_people = _asked()
    assert for_people.returncode == ran.returncode
    assert all(name in for_people.stdout for name in found)


def test_a_wrong_question_is_no_finding() -> None:
    assert _asked("--yaml").returncode == 2


def test_without_gvisor_the_rest_still_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(runsc, "FETCHED", tmp_path / "absent")
    found = doctor.gvisor()
    assert (found.status, bool(found.advice)) == ("warn", True)


def test_a_gvisor_that_does_not_work_is_not_taken_for_one_that_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "runsc"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("TOOLMESH_RUNSC", str(broken))
    assert doctor.gvisor().status == "warn"


def test_a_machine_without_bubblewrap_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(doctor.BubblewrapSandbox):
        def unavailable_reason(self) -> str:
            return "user namespaces are switched off"

    monkeypatch.setattr(doctor, "BubblewrapSandbox", Broken)
    assert doctor.bubblewrap().status == "fail"
    assert doctor.main([]) == 1


def test_a_machine_without_control_groups_is_told_what_that_means(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.CgroupHierarchy, "prepare", lambda instance: CgroupHierarchy({}, []))
    found = doctor.control_groups()
    assert (found.status, bool(found.advice)) == ("warn", True)


@pytest.mark.parametrize("actions", ["", "allow errno"])
def test_a_kernel_without_filters_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, actions: str) -> None:
    (tmp_path / "actions").write_text(actions)
    monkeypatch.setattr(doctor, "_ACTIONS", tmp_path / ("actions" if actions else "absent"))
    assert doctor.filter_of_calls().status == "fail"


def test_elsewhere_than_on_linux_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.platform, "system", lambda: "Plan9")
    assert [finding.status for finding in doctor.findings()] == ["warn"]
