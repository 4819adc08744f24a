"""Cgroups of the real kernel where this process can create them, and cgroup v2 as plain files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.executor.adapters.sandbox.launcher.cgroup import Cgroup, CgroupDir
from services.executor.adapters.sandbox.launcher.cgroup_hierarchy import CgroupHierarchy

MIB = 1 << 20


@pytest.fixture
def hierarchy() -> Iterator[CgroupHierarchy]:
    prepared = CgroupHierarchy.prepare("test")
    if prepared.missing:
        prepared.close()
        pytest.skip(f"control groups cannot be made here: {', '.join(sorted(prepared.missing))}")
    yield prepared
    prepared.close()


@pytest.fixture
def group(hierarchy: CgroupHierarchy) -> Iterator[Cgroup]:
    made = Cgroup.create(hierarchy.parents, "one", memory=32 * MIB, processes=8, millicpus=500)
    yield made
    made.kill()
    made.remove()


def run(group: Cgroup, code: str) -> int:
    """Run Python code in a cgroup and return its exit status."""
    waiting = f"import sys; sys.stdin.read()\n{code}"
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", waiting], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        group.add(process.pid)
        assert process.stdin is not None
        process.stdin.close()
        return process.wait()


def test_oom_kills_are_counted(group: Cgroup) -> None:
    assert group.oom_kills() == 0
    assert run(group, "held = [b'x' * (1 << 20) for _ in range(100)]") == -9
    assert group.oom_kills() == 1
    assert 0 < group.peak_memory() <= 32 * MIB


def test_refused_processes_are_counted(group: Cgroup) -> None:
    assert run(group, "import os, signal\nfor _ in range(20):\n if os.fork() == 0: signal.pause()") == 1
    assert group.refused_processes() >= 1


def test_processor_time_is_counted(group: Cgroup) -> None:
    assert run(group, "sum(range(3_000_000))") == 0
    assert group.cpu_seconds() > 0


def test_kill_ends_every_process_of_the_cgroup(group: Cgroup) -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        group.add(process.pid)
        assert group.pids() == [process.pid]
        assert not group.remove()
        group.kill()
        assert process.wait() == -9
    assert group.pids() == []
    assert group.remove()
    assert group.remove()


def test_a_cgroup_without_its_limits_is_removed(hierarchy: CgroupHierarchy) -> None:
    with pytest.raises(OSError):
        Cgroup.create(hierarchy.parents, "two", memory=32 * MIB, processes=-5, millicpus=500)
    assert [cgroup_dir for cgroup_dir in hierarchy.parents.values() if (Path(cgroup_dir.path) / "two").exists()] == []


def second_version(folder: Path, **files: str) -> Cgroup:
    """A cgroup v2 as plain files with the kernel's names."""
    (folder / "g").mkdir()
    for name in (
        "memory.max",
        "memory.swap.max",
        "memory.oom.group",
        "pids.max",
        "cpu.max",
        "cpu.weight",
        "cgroup.kill",
        "cgroup.procs",
    ):
        (folder / "g" / name).touch()
    for name, text in files.items():
        (folder / "g" / name.replace("_", ".")).write_text(text)
    return Cgroup({what: CgroupDir(str(folder / "g"), unified=True) for what in ("memory", "pids", "cpu")})


def test_cgroup_v2_counters_are_read(tmp_path: Path) -> None:
    group = second_version(
        tmp_path,
        memory_events="low 0\noom 3\noom_kill 2\n",
        pids_events="max 7\n",
        cpu_stat="usage_usec 1500000\nuser_usec 1\n",
        memory_peak="4096\n",
    )
    assert (group.oom_kills(), group.refused_processes(), group.cpu_seconds(), group.peak_memory()) == (2, 7, 1.5, 4096)


def test_cgroup_v2_limits_are_written(tmp_path: Path) -> None:
    group = second_version(tmp_path)
    group._limit(64 * MIB, 12, 250)
    written = {
        name: (tmp_path / "g" / name).read_text()
        for name in ("memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpu.max")
    }
    assert written == {
        "memory.max": str(64 * MIB),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "pids.max": "12",
        "cpu.max": "5000 20000",
    }
    group.kill()
    assert (tmp_path / "g/cgroup.kill").read_text() == "1"
    assert (tmp_path / "g/cpu.max").read_text().startswith("max")


def test_missing_counters_read_as_zero(tmp_path: Path) -> None:
    group = Cgroup({})
    assert (group.oom_kills(), group.refused_processes(), group.cpu_seconds(), group.peak_memory()) == (0, 0, 0.0, 0)
    assert (group.controllers, group.pids()) == (frozenset(), [])
