from __future__ import annotations

import sys
from pathlib import Path

from services.executor.adapters.sandbox.rootfs import build_rootfs, interpreter_path


def test_the_interpreter_is_where_it_is_outside(tmp_path: Path) -> None:
    shown = [inside for _, inside in build_rootfs(tmp_path).binds]
    assert Path(interpreter_path()).is_file()
    assert any(Path(interpreter_path()).is_relative_to(inside) for inside in shown)
    assert Path(interpreter_path()).is_relative_to(sys.base_prefix) or interpreter_path().startswith("/usr/")


def test_what_is_installed_for_the_mesh_is_hidden(tmp_path: Path) -> None:
    binds = build_rootfs(tmp_path).binds
    assert not any(Path(sys.prefix).is_relative_to(host) for host, _ in binds if sys.prefix != sys.base_prefix)
    hidden = [inside for host, inside in binds if host == str(tmp_path / "empty")]
    installed = Path(sys.base_prefix) / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    assert (str(installed) in hidden) == installed.is_dir()
    assert list((tmp_path / "empty").iterdir()) == []


def test_etc_is_ours_and_says_nothing(tmp_path: Path) -> None:
    binds = build_rootfs(tmp_path).binds
    assert (str(tmp_path / "etc"), "/etc") in binds
    assert (tmp_path / "etc/passwd").read_text().count("\n") == 1
    assert (tmp_path / "etc/resolv.conf").read_text() == (tmp_path / "etc/hosts").read_text() == ""
    assert not (tmp_path / "etc/shadow").exists()
    assert not any(host in ("/etc", "/", "/root", "/home", "/var", "/run", "/sys") for host, _ in binds)


def test_what_lies_over_something_comes_after_it(tmp_path: Path) -> None:
    inside = [path for _, path in build_rootfs(tmp_path).binds]
    for at, path in enumerate(inside):
        assert not any(Path(later) in Path(path).parents for later in inside[at + 1 :])


def test_a_view_can_be_made_twice_in_one_folder(tmp_path: Path) -> None:
    assert build_rootfs(tmp_path) == build_rootfs(tmp_path)
