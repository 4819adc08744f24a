"""Locks of packs, the choice of wheels for this interpreter, and hostile wheels."""

from __future__ import annotations

import hashlib
import stat
import zipfile
from pathlib import Path

import pytest

from services.executor.adapters.runners.packs import wheels
from services.executor.adapters.runners.packs.wheels import WheelError, choose_wheels, read_lock, unpack_wheels
from services.executor.tests.wheels import make_wheel

A, B = "a" * 64, "b" * 64
ANY = "demo-1.0-py3-none-any.whl"


def test_a_lock_is_read_as_pip_writes_it() -> None:
    text = (
        f"# made\nDemo_Package==1.0 \\\n    --hash=sha256:{A} \\\n    --hash=sha256:{B}\n\nother==2 --hash=sha256:{A}\n"
    )
    first, second = read_lock(text)
    assert (first.name, first.version, first.digests) == ("demo-package", "1.0", {A, B})
    assert second.name == "other"


@pytest.mark.parametrize(
    "line",
    [
        "demo==1.0",
        "demo>=1.0 --hash=sha256:" + A,
        "demo==1.0 --hash=md5:abc",
        "-e .",
        "--index-url x",
        "demo @ file:///x",
    ],
)
def test_a_line_without_a_pin_and_hashes_is_refused(line: str) -> None:
    with pytest.raises(WheelError):
        read_lock(f"{line}\n")


def test_the_wheel_that_fits_best_is_chosen_by_hash() -> None:
    packages = read_lock(f"demo==1.0 --hash=sha256:{A} --hash=sha256:{B}\n")
    assert choose_wheels(packages, {ANY: A, "demo-1.0-cp27-none-any.whl": B}) == (ANY,)
    tag = next(iter(wheels.sys_tags()))
    native = f"demo-1.0-{tag.interpreter}-{tag.abi}-{tag.platform}.whl"
    assert choose_wheels(packages, {ANY: A, native: B}) == (native,)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {ANY: "c" * 64},
        {"other-1.0-py3-none-any.whl": A},
        {"demo-1.0.tar.gz": A},
        {"demo-1.0-cp27-none-any.whl": A},
        {"demo-1.0-py3-none-win32.whl": A},
        {"demo.whl": A},
    ],
)
def test_a_package_without_a_fitting_wheel_of_its_hash_is_refused(files: dict[str, str]) -> None:
    with pytest.raises(WheelError):
        choose_wheels(read_lock(f"demo==1.0 --hash=sha256:{A}\n"), files)


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
            patch.setattr(wheels, limit, value)
            with pytest.raises(WheelError):
                unpack_wheels([tmp_path / ANY], tmp_path / limit)
