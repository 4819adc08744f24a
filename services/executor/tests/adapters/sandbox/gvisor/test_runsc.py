"""The location and the command line of runsc."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.executor.adapters.sandbox.gvisor import runsc
from services.executor.adapters.sandbox.gvisor.runsc import Runsc, find_runsc, passes_descriptors


def _program(path: Path, mode: int = 0o755, prints: str = "") -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{prints}'\n")
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


def test_named_pipes_are_opened_only_where_descriptors_cannot_be_passed(tmp_path: Path) -> None:
    current, old = (Runsc(Path("/usr/bin/runsc"), "ptrace", passing) for passing in (True, False))
    passing = {"--pass-fd=3:3", "--pass-fd=4:4"}
    command = set(current.command(tmp_path, egress=False, descriptors=(3, 4)))
    assert passing < command
    assert "--host-fifo=open" not in command
    command = set(old.command(tmp_path, egress=False, descriptors=(3, 4)))
    assert "--host-fifo=open" in command
    assert not passing & command
    assert "--host-fifo=open" not in old.command(tmp_path, egress=False)


def test_its_own_help_says_whether_it_passes_descriptors(tmp_path: Path) -> None:
    assert passes_descriptors(_program(tmp_path / "current", prints="  -pass-fd value"))
    assert not passes_descriptors(_program(tmp_path / "old", prints="  -pid-file string"))
    with pytest.raises(OSError, match="absent"):
        passes_descriptors(tmp_path / "absent")
