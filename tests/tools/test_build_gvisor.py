"""The build of gVisor's program: its pins, its digest and its cache. The compiler itself does not run here."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from services.executor.adapters.sandbox.gvisor.runsc import BUILT
from services.executor.doctor import release_date
from tools import build_gvisor
from tools.build_gvisor import GO_MACHINES, PINS, BuildError, age_of, build, pinned_digest, pinned_version

PROGRAM = b"a program"
MACHINE = "x86_64"


class Compiler:
    """Stands in for the Go toolchain: writes a fixed program and notes for which machine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
        self._content, self.machines = content, list[str]()
        digest = hashlib.sha256(PROGRAM).hexdigest()
        monkeypatch.setattr(build_gvisor, "pinned_digest", lambda _machine: digest)
        monkeypatch.setattr(build_gvisor, "compile_runsc", self._compile)

    @property
    def runs(self) -> int:
        return len(self.machines)

    def _compile(self, target: Path, machine: str) -> None:
        self.machines.append(machine)
        target.write_bytes(self._content)


def test_a_program_is_built_once_for_all_checkouts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = Compiler(monkeypatch, PROGRAM)
    for checkout in ("one", "one", "two"):
        program = build(tmp_path / checkout, machine=MACHINE, cache=tmp_path / "cache")
        assert (program.read_bytes(), program.stat().st_mode & 0o777) == (PROGRAM, 0o755)
    assert compiler.runs == 1
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["runsc"]


def test_a_changed_program_is_built_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = Compiler(monkeypatch, PROGRAM)
    build(tmp_path / "bin", machine=MACHINE, cache=tmp_path / "cache")
    for path in (tmp_path / "bin" / "runsc", *(tmp_path / "cache").iterdir()):
        path.write_bytes(b"another program")
    assert build(tmp_path / "bin", machine=MACHINE, cache=tmp_path / "cache").read_bytes() == PROGRAM
    assert compiler.runs == 2


def test_a_program_of_another_digest_replaces_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    Compiler(monkeypatch, b"another program")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "runsc").write_text("the one before")
    with pytest.raises(BuildError):
        build(tmp_path / "bin", machine=MACHINE, cache=tmp_path / "cache")
    assert [path.read_text() for path in (tmp_path / "bin").iterdir()] == ["the one before"]
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_machine_that_cannot_build_says_so_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, repository: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # An index without any package, as on a machine without a network.
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    command = [sys.executable, str(repository / "tools" / "build_gvisor.py"), str(tmp_path / "bin")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr.count("\n"), (tmp_path / "bin").exists()) == (1, 1, False)
    assert list((tmp_path / "cache" / "toolmesh").iterdir()) == []


def test_the_command_line_names_another_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = Compiler(monkeypatch, PROGRAM)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "argv", ["build_gvisor.py", str(tmp_path / "bin"), "aarch64"])
    assert build_gvisor.main() == 0
    assert compiler.machines == ["aarch64"]
    assert (tmp_path / "bin" / "runsc").read_bytes() == PROGRAM


def test_gvisor_runs_on_linux_on_two_machines(tmp_path: Path) -> None:
    with pytest.raises(BuildError):
        build(tmp_path, machine="riscv64")


def test_everything_is_pinned_for_both_machines() -> None:
    assert {machine: len(pinned_digest(machine)) for machine in GO_MACHINES} == dict.fromkeys(GO_MACHINES, 64)
    assert (PINS / "toolchain.lock").read_text().count("--hash=sha256:") == len(GO_MACHINES)
    released = release_date(pinned_version())
    assert released is not None
    assert abs(datetime.now(UTC).date() - age_of(pinned_version()) - released) <= timedelta(days=1)
    modules = re.findall(r"^\t(\S+ \S+)", (PINS / "go.mod").read_text(), re.MULTILINE)
    sums = {line.rpartition(" ")[0] for line in (PINS / "go.sum").read_text().splitlines()}
    assert modules
    assert [module for module in modules if module not in sums] == []


def test_the_executor_looks_where_the_target_puts_it(repository: Path) -> None:
    assert (repository / ".toolmesh" / "bin" / "runsc") == BUILT
    assert _folder_of_target(repository) == ".toolmesh/bin"
    # A program for another machine does not take its place.
    assert _folder_of_target(repository, "MACHINE=aarch64") == ".toolmesh/bin/aarch64"


def _folder_of_target(repository: Path, *variables: str) -> str:
    command = ["make", "--dry-run", "--no-print-directory", "gvisor", *variables]
    printed = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True).stdout
    return printed.split("tools/build_gvisor.py ")[1].split()[0]
