"""The archive of a tool's files, and its bound."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from services.executor.adapters.sandbox.pods import tool_files
from services.executor.adapters.sandbox.pods.tool_files import TooLargeError, measure_files, write_archive


def test_the_archive_has_the_files_at_their_paths_inside_and_no_owner(tmp_path: Path) -> None:
    (tmp_path / "lib" / "empty").mkdir(parents=True)
    (tmp_path / "lib" / "module.py").write_text("x = 1")
    (tmp_path / "program").write_text("#!/bin/sh")
    (tmp_path / "program").chmod(0o700)
    target = io.BytesIO()
    write_archive([(str(tmp_path), "/packs/one")], target)
    with tarfile.open(fileobj=io.BytesIO(target.getvalue())) as archive:
        members = {member.name: member for member in archive}
    assert {name: oct(member.mode) for name, member in members.items()} == {
        "packs/one/program": "0o755",
        "packs/one/lib": "0o755",
        "packs/one/lib/module.py": "0o644",
        "packs/one/lib/empty": "0o755",
    }
    assert {(member.uid, member.uname) for member in members.values()} == {(0, "")}


def test_what_does_not_fit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        (tmp_path / str(number)).write_bytes(bytes(4097))
    assert measure_files([(str(tmp_path), "/packs/one")]) == 5 * 3 * 4096
    monkeypatch.setattr(tool_files, "MAX_FILES", 4)
    with pytest.raises(TooLargeError):
        measure_files([(str(tmp_path), "/packs/one")])
    monkeypatch.setattr(tool_files, "MAX_FILES", 50)
    monkeypatch.setattr(tool_files, "MAX_BYTES", 50_000)
    with pytest.raises(TooLargeError):
        measure_files([(str(tmp_path), "/packs/one")])
