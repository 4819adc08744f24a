"""Temporary directories that are locked by their process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from services.executor.adapters.sandbox.scratch.locked_tempdir import LockedTempDir

MAKE = (
    "import sys\nfrom pathlib import Path\n"
    "from services.executor.adapters.sandbox.scratch.locked_tempdir import LockedTempDir\n"
)
NEST = "import os\nfor _ in range(1500): os.mkdir('d'); os.chdir('d')"
HOLD = MAKE + "made = LockedTempDir('test', within=Path(sys.argv[1]))\nprint(made.path, flush=True)\nsys.stdin.read()"

LEAVE = MAKE + "print(LockedTempDir('test', within=Path(sys.argv[1])).path)"
SWEEP_MOUNT = (
    MAKE
    + """
from services.executor.adapters.sandbox.launcher import syscalls
within, left = Path(sys.argv[1]), Path(sys.argv[2])
# The mount is seen by this process alone and ends with it.
syscalls.own_mount_namespace()
mounted = left / "a state" / "null-netns"
mounted.parent.mkdir()
mounted.touch()
syscalls.bind_mount("/dev/null", str(mounted))
assert left.name in Path("/proc/self/mountinfo").read_text()
LockedTempDir("test", within=within).remove()
assert not left.exists()
"""
)


def _holder(within: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(within)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_tempdir_is_private_and_removed_with_its_content(tmp_path: Path) -> None:
    folder = LockedTempDir("test", within=tmp_path)
    assert folder.path.stat().st_mode & 0o777 == 0o700
    (folder.path / "deep").mkdir()
    (folder.path / "deep" / "file").write_text("x")
    folder.remove()
    folder.remove()
    assert not folder.path.exists()
    passable = LockedTempDir("test", within=tmp_path, mode=0o711)
    assert passable.path.stat().st_mode & 0o777 == 0o711
    passable.remove()


def test_a_killed_processs_tempdir_is_removed_and_a_live_one_kept(tmp_path: Path) -> None:
    killed, left = _holder(tmp_path)
    alive, kept = _holder(tmp_path)
    killed.kill()
    killed.communicate()
    assert left.exists()
    folder = LockedTempDir("test", within=tmp_path)
    assert not left.exists()
    assert kept.exists()
    folder.remove()
    alive.communicate()


def test_a_deeply_nested_stale_tempdir_is_removed(tmp_path: Path) -> None:
    killed, left = _holder(tmp_path)
    subprocess.run([sys.executable, "-c", NEST], cwd=left, check=True)
    killed.kill()
    killed.communicate()
    LockedTempDir("test", within=tmp_path).remove()
    assert not left.exists()


@pytest.mark.parametrize("left_behind", ["lock", "everything"])
def test_a_process_killed_while_it_creates_or_removes_its_tempdir_leaves_none(tmp_path: Path, left_behind: str) -> None:
    killed, left = _holder(tmp_path)
    (left / "lock").unlink()
    if left_behind == "lock":
        (left / "lock.making").touch()
    LockedTempDir("test", within=tmp_path).remove()
    assert left.exists()
    killed.kill()
    killed.communicate()
    LockedTempDir("test", within=tmp_path).remove()
    assert not left.exists()


def test_what_a_killed_process_left_mounted_is_unmounted(tmp_path: Path) -> None:
    leave = [sys.executable, "-c", LEAVE, str(tmp_path)]
    left = subprocess.run(leave, capture_output=True, text=True, check=True).stdout.strip()
    subprocess.run([sys.executable, "-c", SWEEP_MOUNT, str(tmp_path), left], check=True)
    assert list(tmp_path.iterdir()) == []


def test_other_directories_are_kept(tmp_path: Path) -> None:
    other_kind, unlocked = LockedTempDir("other", within=tmp_path), tmp_path / "toolmesh-test-unlocked"
    unlocked.mkdir()
    (tmp_path / "toolmesh-test-link").symlink_to(other_kind.path)
    folder = LockedTempDir("test", within=tmp_path)
    assert unlocked.exists()
    assert other_kind.path.exists()
    folder.remove()
    other_kind.remove()
    if os.geteuid() == 0:
        strange = LockedTempDir("test", within=tmp_path)
        strange.remove()
        strange.path.mkdir()
        (strange.path / "lock").touch()
        os.chown(strange.path, 65534, 65534)
        LockedTempDir("test", within=tmp_path).remove()
        assert strange.path.exists()
