"""Fetching gVisor's program out of the distribution's packages."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from services.executor.adapters.sandbox.gvisor import runsc
from tools.fetch_gvisor import CannotFetchError, fetch, program_in, program_in_use


def _package(
    path: Path, *, member: str = "./usr/bin/runsc", compression: str = "xz", content: bytes = b"program"
) -> Path:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=f"w:{compression}") as files:  # type: ignore[call-overload]
        entry = tarfile.TarInfo(member)
        entry.size = len(content)
        files.addfile(entry, io.BytesIO(content))
    parts = {"debian-binary": b"2.0\n", "control.tar.xz": b"odd", f"data.tar.{compression}": packed.getvalue()}
    path.write_bytes(b"!<arch>\n" + b"".join(_entry(name, part) for name, part in parts.items()))
    return path


def _entry(name: str, content: bytes) -> bytes:
    head = f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}".encode() + b"`\n"
    return head + content + b"\n" * (len(content) % 2)


def _apt(folder: Path, package: Path | None) -> None:
    """An apt-get that downloads what the test prepared, or nothing."""
    folder.mkdir(exist_ok=True)
    program = folder / "apt-get"
    program.write_text(
        f"#!/bin/sh\n[ \"$1\" = download ] && /bin/cp '{package}' ./runsc_1_any.deb\n"
        if package
        else "#!/bin/sh\nexit 100\n"
    )
    program.chmod(0o755)


@pytest.mark.parametrize("compression", ["xz", "gz"])
def test_the_program_is_found_in_a_package(tmp_path: Path, compression: str) -> None:
    assert program_in(_package(tmp_path / "p.deb", compression=compression)) == b"program"


def test_a_package_without_the_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotFetchError):
        program_in(_package(tmp_path / "p.deb", member="./usr/bin/runsc/../other"))


@pytest.mark.parametrize("content", [b"", b"not a package", b"!<arch>\n" + b"x" * 60, b"!<arch>\n"])
def test_what_is_no_package_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "p.deb").write_bytes(content)
    with pytest.raises(CannotFetchError):
        program_in(tmp_path / "p.deb")


@pytest.mark.parametrize("absolute", [True, False])
def test_what_was_fetched_can_be_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, absolute: bool) -> None:
    monkeypatch.chdir(tmp_path)
    _apt(tmp_path / "bin", _package(tmp_path / "p.deb", content=b"#!/bin/sh\necho runsc version 1\n"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    found = fetch((tmp_path if absolute else Path()) / "target" / "bin")
    assert subprocess.run([found], capture_output=True, check=True).stdout == b"runsc version 1\n"
    assert [path.name for path in found.parent.iterdir()] == ["runsc"]


def test_what_does_not_run_replaces_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _apt(tmp_path / "bin", _package(tmp_path / "p.deb", content=b"\x7fELF for another machine"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "runsc").write_text("the one before")
    with pytest.raises(CannotFetchError):
        fetch(tmp_path / "target")
    assert [path.read_text() for path in (tmp_path / "target").iterdir()] == ["the one before"]


@pytest.mark.parametrize("apt", [True, False])
def test_a_machine_that_cannot_fetch_says_so_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, repository: Path, apt: bool
) -> None:
    if apt:
        _apt(tmp_path / "bin", None)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    command = [sys.executable, str(repository / "tools" / "fetch_gvisor.py"), str(tmp_path / "target")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr.count("\n"), (tmp_path / "target").exists()) == (1, 1, False)


def test_it_agrees_with_the_executor_about_the_program_in_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fetched = runsc.FETCHED
    for named, path in (("", ""), (str(_program(tmp_path / "named")), ""), ("", str(_program(tmp_path / "path")))):
        monkeypatch.setenv("TOOLMESH_RUNSC", named)
        monkeypatch.setenv("PATH", str(Path(path).parent) if path else "")
        monkeypatch.setattr(os, "access", lambda *_: True)
        used = runsc.find_runsc(Path(named) if named else None)
        assert program_in_use(fetched) == used


def _program(folder: Path) -> Path:
    folder.mkdir()
    program = folder / "runsc"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program
