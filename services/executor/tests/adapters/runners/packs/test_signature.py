"""Signatures of packs: every change of a file is seen, and none where there is none."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from services.executor.adapters.runners.packs import signature
from services.executor.adapters.runners.packs.signature import signature_of
from services.executor.tests.packing import make_pack


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    folder = make_pack(tmp_path, "kit", {"m.py": "x = 1\n", "deep/n.py": ""})
    (folder / "link").symlink_to("m.py")
    return folder


def keep_times(path: Path) -> None:
    """Write other content of the same size, and set the times back."""
    before = path.stat()
    path.write_text("x = 2\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES: dict[str, Callable[[Path], object]] = {
    "content": lambda pack: (pack / "m.py").write_text("x = 2\n"),
    "content under old times": lambda pack: keep_times(pack / "m.py"),
    "mode": lambda pack: (pack / "m.py").chmod(0o755),
    "added": lambda pack: (pack / "deep" / "new.py").touch(),
    "removed": lambda pack: (pack / "deep" / "n.py").unlink(),
    "renamed": lambda pack: (pack / "m.py").rename(pack / "o.py"),
    "folder": lambda pack: (pack / "deep").rename(pack / "deeper"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen(pack: Path, change: str) -> None:
    before = signature_of(pack)
    assert signature_of(pack) == before
    CHANGES[change](pack)
    assert signature_of(pack) != before


def test_what_is_not_loaded_is_not_seen(pack: Path) -> None:
    before = signature_of(pack)
    (pack / "__pycache__").mkdir()
    (pack / "__pycache__" / "m.pyc").touch()
    assert signature_of(pack) == before


def test_another_target_of_a_link_to_the_pack_is_a_change(tmp_path: Path) -> None:
    for name in ("one", "two"):
        make_pack(tmp_path / name, "kit", {})
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "one" / "kit")
    before = signature_of(link)
    link.unlink()
    link.symlink_to(tmp_path / "two" / "kit")
    assert signature_of(link) != before


def test_a_folder_that_cannot_be_read_has_none(tmp_path: Path) -> None:
    assert signature_of(tmp_path / "nothing") is None


def test_the_work_is_bounded(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signature, "MAX_FILES", 1)
    cut = signature_of(pack)
    assert cut is not None
    assert len(cut) == 3
