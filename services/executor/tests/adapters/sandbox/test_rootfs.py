from __future__ import annotations

import sys
from pathlib import Path

from services.executor.adapters.sandbox.rootfs import build_rootfs, interpreter_path


def test_interpreter_path_is_the_same_inside(tmp_path: Path) -> None:
    shown = [inside for _, inside in build_rootfs(tmp_path).binds]
    assert Path(interpreter_path()).is_file()
    assert any(Path(interpreter_path()).is_relative_to(inside) for inside in shown)
    assert Path(interpreter_path()).is_relative_to(sys.base_prefix) or interpreter_path().startswith("/usr/")


def test_site_packages_are_hidden(tmp_path: Path) -> None:
    binds = build_rootfs(tmp_path).binds
    assert not any(Path(sys.prefix).is_relative_to(host) for host, _ in binds if sys.prefix != sys.base_prefix)
    hidden = [inside for host, inside in binds if host == str(tmp_path / "empty")]
    installed = Path(sys.base_prefix) / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    assert (str(installed) in hidden) == installed.is_dir()
    assert list((tmp_path / "empty").iterdir()) == []


def test_etc_is_generated_and_minimal(tmp_path: Path) -> None:
    binds = build_rootfs(tmp_path).binds
    assert (str(tmp_path / "etc"), "/etc") in binds
    assert (tmp_path / "etc/passwd").read_text().count("\n") == 1
    assert (tmp_path / "etc/resolv.conf").read_text() == (tmp_path / "etc/hosts").read_text() == ""
    assert not (tmp_path / "etc/shadow").exists()
    assert not any(host in ("/etc", "/", "/root", "/home", "/var", "/run", "/sys") for host, _ in binds)


def test_nested_mounts_come_after_their_parents(tmp_path: Path) -> None:
    inside = [path for _, path in build_rootfs(tmp_path).binds]
    for at, path in enumerate(inside):
        assert not any(Path(later) in Path(path).parents for later in inside[at + 1 :])


def test_rootfs_can_be_built_twice_in_one_folder(tmp_path: Path) -> None:
    assert build_rootfs(tmp_path) == build_rootfs(tmp_path)
