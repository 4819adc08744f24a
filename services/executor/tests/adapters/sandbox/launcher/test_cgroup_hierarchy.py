from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from services.executor.adapters.sandbox.launcher.cgroup import CgroupDir
from services.executor.adapters.sandbox.launcher.cgroup_hierarchy import (
    CgroupHierarchy,
    CgroupPolicy,
    find_cgroup_dirs,
    remove_stale_cgroups,
)

MIXED_GROUPS = "9:name=systemd:/\n8:pids:/jobs/7\n4:memory:/jobs/7\n2:cpu,cpuacct:/\n0::/session\n"
MIXED_MOUNTS = (
    "31 30 0:27 / /cg/pids rw,relatime - cgroup cgroup rw,pids\n"
    "32 30 0:28 /jobs /cg/memory rw,relatime - cgroup cgroup rw,memory\n"
    "33 30 0:29 / /cg/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
    "34 30 0:30 / /cg/unified rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
    "35 30 0:31 / /tmp rw - tmpfs tmpfs rw\n"
)


def ended_process() -> int:
    process = subprocess.Popen(["/bin/true"])
    process.wait()
    return process.pid


def name_of(pid: int, *, boot: str = "", start: int = 1) -> str:
    boot = boot or Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    return f"toolmesh-gone-{boot}-{pid}-{start}-abcdef"


def test_own_cgroup_of_each_controller_is_found() -> None:
    assert find_cgroup_dirs(groups=MIXED_GROUPS, mounts=MIXED_MOUNTS) == {
        "pids": CgroupDir("/cg/pids/jobs/7", unified=False),
        "memory": CgroupDir("/cg/memory/7", unified=False),
        "cpu": CgroupDir("/cg/cpu", unified=False),
        "cpuacct": CgroupDir("/cg/cpu", unified=False),
    }


def test_cgroup_v2_controllers_are_read_from_the_group(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/cgroup.controllers").write_text("cpu memory pids hugetlb\n")
    mounts = f"34 30 0:30 / {tmp_path} rw - cgroup2 cgroup2 rw\n"
    found = find_cgroup_dirs(groups="0::/own\n", mounts=mounts)
    assert found == {what: CgroupDir(str(tmp_path / "own"), unified=True) for what in ("memory", "pids", "cpu")}


def test_a_cgroup_outside_the_mount_is_not_used() -> None:
    assert find_cgroup_dirs(groups="8:pids:/../other\n", mounts=MIXED_MOUNTS) == {}
    assert find_cgroup_dirs(groups="4:memory:/elsewhere\n", mounts=MIXED_MOUNTS) == {}


def test_no_mounted_hierarchy_gives_no_cgroup() -> None:
    assert find_cgroup_dirs(groups="", mounts="") == {}


def test_a_parent_is_below_the_own_cgroup_or_a_path_from_the_root() -> None:
    below = find_cgroup_dirs("tools", groups=MIXED_GROUPS, mounts=MIXED_MOUNTS)
    assert below["pids"].path == "/cg/pids/jobs/7/tools"
    assert below["memory"].path == "/cg/memory/7/tools"
    assert below["cpu"].path == "/cg/cpu/tools"
    absolute = find_cgroup_dirs("/jobs/tools/", groups=MIXED_GROUPS, mounts=MIXED_MOUNTS)
    assert (absolute["pids"].path, absolute["memory"].path) == ("/cg/pids/jobs/tools", "/cg/memory/tools")
    assert find_cgroup_dirs("/../tools", groups=MIXED_GROUPS, mounts=MIXED_MOUNTS) == {}


def test_the_first_writable_mount_of_a_hierarchy_is_used(tmp_path: Path) -> None:
    (tmp_path / "given/7").mkdir(parents=True)
    mounts = (
        "30 1 0:9 / /absent ro - cgroup cgroup rw,memory\n"
        f"31 1 0:9 / {tmp_path}/given rw - cgroup cgroup rw,memory\n"
        f"32 1 0:9 / {tmp_path}/later rw - cgroup cgroup rw,memory\n"
    )
    assert find_cgroup_dirs(groups="4:memory:/7\n", mounts=mounts)["memory"].path == f"{tmp_path}/given/7"


def test_a_parent_that_is_given_holds_the_directories() -> None:
    """With real cgroups, where this user may create them."""
    given = [cgroup_dir.path for cgroup_dir in find_cgroup_dirs().values() if not cgroup_dir.unified]
    if not given or not all(os.access(path, os.W_OK) for path in given):
        pytest.skip("no cgroup v1 that this user may change")
    folders = {f"{path}/test-parent-{os.getpid()}" for path in given}
    for folder in folders:
        Path(folder).mkdir()
    try:
        hierarchy = CgroupHierarchy.for_policy("x", CgroupPolicy("required", f"test-parent-{os.getpid()}"))
        parents = {str(Path(cgroup_dir.path).parent) for cgroup_dir in hierarchy.parents.values()}
        hierarchy.close()
    finally:
        for folder in folders:
            Path(folder).rmdir()
    assert parents == folders


def test_hierarchy_directories_are_created_and_removed(tmp_path: Path) -> None:
    hierarchy = CgroupHierarchy.prepare("a b/c", own={"pids": CgroupDir(str(tmp_path), unified=False)})
    (made,) = tmp_path.iterdir()
    assert made.name.startswith("toolmesh-a_b_c-")
    assert hierarchy.parents == {"pids": CgroupDir(str(made), unified=False)}
    assert hierarchy.missing == {"memory", "cpu"}
    hierarchy.close()
    assert list(tmp_path.iterdir()) == []


def test_two_hierarchies_of_one_process_are_separate(tmp_path: Path) -> None:
    own = {"pids": CgroupDir(str(tmp_path), unified=False)}
    first, second = CgroupHierarchy.prepare("x", own=own), CgroupHierarchy.prepare("x", own=own)
    assert first.parents != second.parents
    second.close()
    assert Path(first.parents["pids"].path).exists()
    first.close()


def test_stale_directories_are_removed_and_locked_ones_kept(tmp_path: Path) -> None:
    abandoned = tmp_path / name_of(ended_process())
    (abandoned / "7").mkdir(parents=True)
    living = CgroupHierarchy.prepare("alive", own={"pids": CgroupDir(str(tmp_path), unified=False)})
    remove_stale_cgroups(str(tmp_path))
    assert [str(path) for path in tmp_path.iterdir()] == [living.parents["pids"].path]
    living.close()


def test_directories_that_may_belong_to_others_are_kept(tmp_path: Path) -> None:
    gone, own = ended_process(), os.getpid()
    start = int(Path(f"/proc/{own}/stat").read_text().rpartition(")")[2].split()[19])
    kept = [
        "toolmesh-gateway.service",
        "toolmesh-gone-1-abc",
        name_of(gone, boot="00000000"),
        name_of(own, start=start),
    ]
    for name in (*kept, name_of(gone), name_of(own, start=start + 1)):
        (tmp_path / name).mkdir()
    remove_stale_cgroups(str(tmp_path))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)


def test_a_killed_executor_holds_no_lock(tmp_path: Path) -> None:
    code = (
        "import os, sys, signal\n"
        "from services.executor.adapters.sandbox.launcher.cgroup_hierarchy import CgroupHierarchy\n"
        "from services.executor.adapters.sandbox.launcher.cgroup import CgroupDir\n"
        "held = CgroupHierarchy.prepare('x', own={'pids': CgroupDir(sys.argv[1], False)})\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=Path(__file__).parents[6], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    remove_stale_cgroups(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_cgroup_v2_is_not_delegated_if_other_processes_share_the_group(tmp_path: Path) -> None:
    """The kernel would refuse it, and processes of others are never moved."""
    (tmp_path / "cgroup.procs").write_text("1\n2\n")
    hierarchy = CgroupHierarchy.prepare("x", own={"memory": CgroupDir(str(tmp_path), unified=True)})
    assert hierarchy.missing >= {"memory"}
    assert (tmp_path / "cgroup.procs").read_text() == "1\n2\n"
    hierarchy.close()
    assert [path.name for path in tmp_path.iterdir()] == ["cgroup.procs"]


def test_cgroup_v2_controllers_are_delegated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel creates control files in every new directory; here the test does."""
    make = os.mkdir

    def make_with_files(path: str) -> None:
        make(path)
        (Path(path) / "cgroup.subtree_control").touch()

    monkeypatch.setattr(os, "mkdir", make_with_files)
    (tmp_path / "cgroup.subtree_control").write_text("pids")
    hierarchy = CgroupHierarchy.prepare("x", own={"memory": CgroupDir(str(tmp_path), unified=True)})
    folder = Path(hierarchy.parents["memory"].path)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory"
    assert (folder / "cgroup.subtree_control").read_text() == "+memory"
    (folder / "cgroup.subtree_control").unlink()
    hierarchy.close()


def test_an_unwritable_cgroup_directory_is_not_used(tmp_path: Path) -> None:
    hierarchy = CgroupHierarchy.prepare("x", own={"memory": CgroupDir(str(tmp_path / "absent"), unified=False)})
    assert hierarchy.parents == {}
    hierarchy.close()
