"""The location and the command line of runsc."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.executor.adapters.sandbox.gvisor import runsc
from services.executor.adapters.sandbox.gvisor.runsc import Runsc, find_runsc


def _program(path: Path, mode: int = 0o755) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def test_configured_runsc_comes_before_the_built_one_and_that_before_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    on_path, built, named = (_program(tmp_path / folder / "runsc") for folder in ("path", "built", "named"))
    monkeypatch.setattr(runsc, "BUILT", built)
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert find_runsc(named) == named
    assert find_runsc(None) == built
    built.unlink()
    assert find_runsc(None) == on_path
    monkeypatch.setenv("PATH", "")
    assert find_runsc(None) is None


def test_a_runsc_that_is_not_executable_is_none(tmp_path: Path) -> None:
    assert find_runsc(_program(tmp_path / "runsc", 0o644)) is None
    assert find_runsc(tmp_path / "absent") is None


def test_host_sockets_are_closed_without_egress(tmp_path: Path) -> None:
    program = Runsc(Path("/usr/bin/runsc"), "ptrace")
    closed, opened = program.command(tmp_path, egress=False), program.command(tmp_path, egress=True)
    assert "--host-uds=none" in closed
    assert "--host-uds=open" in opened
    for command in (closed, opened):
        assert {"--network=none", "--platform=ptrace", "--oci-seccomp", "--overlay2=none"} < set(command)
        assert command[-1] == tmp_path.name
