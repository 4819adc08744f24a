"""Control groups: where the caller's own are, how the node's are named, and that they are removed with all below."""

from __future__ import annotations

from pathlib import Path

from deploy.cluster.node.control_groups import (
    Hierarchy,
    group_name,
    make_groups,
    parse_hierarchies,
    remove_groups,
)

MOUNTINFO = """\
25 20 0:22 / /sys rw,relatime - sysfs sysfs rw
30 25 0:26 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/systemd rw,nosuid shared:10 - cgroup cgroup rw,xattr,name=systemd
33 30 0:29 /docker/abc /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory
34 30 0:30 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
CGROUP = """\
9:name=systemd:/session/one
4:memory:/docker/abc/runner
3:pids:/
1:cpu,cpuacct:/
0::/
"""


def test_hierarchies_are_those_that_are_mounted_with_the_callers_group() -> None:
    root = Path("/sys/fs/cgroup")
    assert parse_hierarchies(CGROUP, MOUNTINFO) == [
        Hierarchy("name=systemd", root / "systemd" / "session" / "one"),
        # A container sees its own part of the hierarchy at the mount point.
        Hierarchy("memory", root / "memory" / "runner"),
        Hierarchy("cpu,cpuacct", root / "cpu,cpuacct"),
    ]


def test_the_mount_of_controllers_is_found_in_any_order() -> None:
    (hierarchy,) = parse_hierarchies("1:cpuacct,cpu:/", MOUNTINFO)
    assert hierarchy.own_group == Path("/sys/fs/cgroup/cpu,cpuacct")


def test_groups_are_named_by_their_checkout_and_are_none_of_an_executor(tmp_path: Path) -> None:
    names = {group_name(tmp_path / checkout) for checkout in ("one", "two")}
    assert len(names) == 2
    assert not [name for name in names if name.startswith("toolmesh-")]


def test_a_group_of_cpuset_gets_what_its_parent_has(tmp_path: Path) -> None:
    (tmp_path / "cpuset.cpus").write_text("0-1\n")
    (tmp_path / "cpuset.mems").write_text("0\n")
    make_groups([tmp_path / "node"])
    assert (tmp_path / "node" / "cpuset.cpus").read_text() == "0-1\n"
    assert (tmp_path / "node" / "cpuset.mems").read_text() == "0\n"


def test_groups_are_removed_with_all_below_and_need_not_exist(tmp_path: Path) -> None:
    (tmp_path / "node" / "kubepods" / "burstable" / "pod1").mkdir(parents=True)
    remove_groups([tmp_path / "node", tmp_path / "never-made"])
    assert list(tmp_path.iterdir()) == []
