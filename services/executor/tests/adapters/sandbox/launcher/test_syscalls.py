"""System calls for mounts, each tried in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[6]
BOOT = f"""
import os, sys
sys.path.insert(0, {str(REPOSITORY)!r})
from services.executor.adapters.sandbox.launcher import syscalls
folder = sys.argv[1]
"""


def run(code: str, folder: Path) -> None:
    subprocess.run([sys.executable, "-I", "-S", "-c", BOOT + code, str(folder)], check=True)


def test_a_mount_exists_in_its_namespace_alone(tmp_path: Path) -> None:
    run(
        """
syscalls.own_mount_namespace()
syscalls.mount_bounded_tmpfs(folder, 1 << 20, 10)
open(folder + "/inside", "w").close()
syscalls.resize_tmpfs(folder, 1 << 19)
assert os.statvfs(folder).f_blocks * os.statvfs(folder).f_frsize == 1 << 19
""",
        tmp_path,
    )
    assert list(tmp_path.iterdir()) == []


def test_a_detached_mount_is_gone(tmp_path: Path) -> None:
    (tmp_path / "outside").touch()
    run(
        """
syscalls.own_mount_namespace()
syscalls.mount_bounded_tmpfs(folder, 1 << 20, 10)
assert os.listdir(folder) == []
syscalls.detach_mount(folder)
assert os.listdir(folder) == ["outside"]
""",
        tmp_path,
    )


def test_another_process_can_join_a_namespace(tmp_path: Path) -> None:
    run(
        """
ready, done = os.pipe(), os.pipe()
holder = os.fork()
if holder == 0:
    os.close(done[1])
    syscalls.own_mount_namespace()
    syscalls.mount_bounded_tmpfs(folder, 1 << 20, 10)
    os.mkdir(folder + "/inside")
    os.write(ready[1], b"1")
    os.read(done[0], 1)
    os._exit(0)
assert os.read(ready[0], 1) == b"1"
assert os.listdir(folder) == []
syscalls.join_mount_namespace(holder)
assert os.listdir(folder) == ["inside"]
os.close(done[1])
os.waitpid(holder, 0)
""",
        tmp_path,
    )


def test_a_failed_call_raises(tmp_path: Path) -> None:
    run(
        """
syscalls.own_mount_namespace()
try:
    syscalls.detach_mount(folder)
except OSError as error:
    assert error.errno
else:
    raise AssertionError
""",
        tmp_path,
    )
