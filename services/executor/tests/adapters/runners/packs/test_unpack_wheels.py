"""Wheels are unpacked within their folder and within limits."""

from __future__ import annotations

import hashlib
import stat
import zipfile
from pathlib import Path

import pytest

from services.executor.adapters.runners.packs import unpack_wheels as module
from services.executor.adapters.runners.packs.package_lock import WheelError
from services.executor.adapters.runners.packs.unpack_wheels import unpack_wheels
from services.executor.tests.wheels import make_wheel

ANY = "demo-1.0-py3-none-any.whl"


def test_the_importable_parts_of_a_wheel_are_unpacked(tmp_path: Path) -> None:
    members = {
        "demo/__init__.py": "X = 1",
        "demo-1.0.data/purelib/pure.py": "",
        "demo-1.0.data/scripts/run": "",
        "demo-1.0.dist-info/METADATA": "",
    }
    make_wheel(tmp_path, ANY, members)
    unpack_wheels([tmp_path / ANY], tmp_path / "library")
    found = {
        str(path.relative_to(tmp_path / "library")) for path in (tmp_path / "library").rglob("*") if path.is_file()
    }
    assert found == {"demo/__init__.py", "pure.py", "demo-1.0.dist-info/METADATA"}
    assert (tmp_path / "library" / "demo" / "__init__.py").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("name", ["../out.py", "/out.py", "demo/../../out.py", "demo\\..\\out.py"])
def test_a_wheel_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    make_wheel(tmp_path / "in", ANY, {name: "x"})
    with pytest.raises(WheelError):
        unpack_wheels([tmp_path / "in" / ANY], tmp_path / "library")
    assert not (tmp_path / "out.py").exists()


def test_a_link_in_a_wheel_is_refused(tmp_path: Path) -> None:
    member = zipfile.ZipInfo("demo/link")
    member.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / ANY, "w") as archive:
        archive.writestr(member, "/etc/passwd")
    with pytest.raises(WheelError):
        unpack_wheels([tmp_path / ANY], tmp_path / "library")


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / ANY).write_bytes(hashlib.sha256(b"").digest())
    with pytest.raises(WheelError):
        unpack_wheels([tmp_path / ANY], tmp_path / "library")


def test_two_packages_cannot_write_one_file(tmp_path: Path) -> None:
    make_wheel(tmp_path, ANY, {"demo.py": "1"})
    make_wheel(tmp_path, "other-1.0-py3-none-any.whl", {"demo.py": "2"})
    with pytest.raises(WheelError):
        unpack_wheels([tmp_path / ANY, tmp_path / "other-1.0-py3-none-any.whl"], tmp_path / "library")


def test_what_is_unpacked_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_wheel(tmp_path, ANY, {"demo.py": "x" * 100, "more.py": "x" * 100})
    for limit, value in (("MAX_BYTES", 150), ("MAX_FILES", 1)):
        with monkeypatch.context() as patch:
            patch.setattr(module, limit, value)
            with pytest.raises(WheelError):
                unpack_wheels([tmp_path / ANY], tmp_path / limit)
