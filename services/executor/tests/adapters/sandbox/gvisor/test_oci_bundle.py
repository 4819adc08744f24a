"""The OCI bundle of a gVisor container."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from services.executor.adapters.sandbox.gvisor.oci_bundle import write_bundle
from services.executor.adapters.sandbox.port import Plan
from services.executor.adapters.sandbox.rootfs import RootfsLayout


@pytest.fixture
def view(tmp_path: Path) -> RootfsLayout:
    shown = tmp_path / "shown"
    shown.mkdir()
    return RootfsLayout(binds=((str(shown), "/usr"),), links=(("usr/bin", "/bin"),))


def _written(folder: Path, plan: Plan, view: RootfsLayout, **changes: Any) -> dict[str, Any]:
    folder.mkdir()
    write_bundle(folder, plan, view, **{"user": 65534, "memory_limited": True, **changes})
    description: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return description


def _limits(description: dict[str, Any]) -> dict[str, int]:
    assert all(limit["soft"] == limit["hard"] for limit in description["process"]["rlimits"])
    return {limit["type"]: limit["hard"] for limit in description["process"]["rlimits"]}


def test_config_has_arguments_and_no_privileges(tmp_path: Path, view: RootfsLayout) -> None:
    description = _written(tmp_path / "b", Plan(("/bin/tool", "a b"), environment={"A": "b=c"}), view)
    process = description["process"]
    assert (process["args"], process["env"]) == (["/bin/tool", "a b"], ["A=b=c"])
    assert (process["capabilities"], process["noNewPrivileges"]) == ({}, True)
    assert process["user"] == {"uid": 65534, "gid": 65534}
    assert description["root"]["readonly"] is True
    assert {each["type"] for each in description["linux"]["namespaces"]} >= {"pid", "network", "mount", "ipc"}
    assert description["linux"]["seccomp"]["defaultAction"] == "SCMP_ACT_ERRNO"


def test_rlimits_are_those_of_the_plan(tmp_path: Path, view: RootfsLayout) -> None:
    plan = Plan(("x",), processes=7, file_bytes=8, memory_bytes=9)
    limits = _limits(_written(tmp_path / "b", plan, view))
    assert (limits["RLIMIT_NPROC"], limits["RLIMIT_FSIZE"], limits["RLIMIT_CORE"]) == (7, 8, 0)
    assert "RLIMIT_CPU" not in limits  # counted from outside
    assert "RLIMIT_AS" not in limits
    assert _limits(_written(tmp_path / "c", plan, view, memory_limited=False))["RLIMIT_AS"] == 9


def test_mounts_are_those_of_the_plan(tmp_path: Path, view: RootfsLayout) -> None:
    for name in ("read", "write"):
        (tmp_path / name).mkdir()
    plan = Plan(
        ("x",),
        readable=((str(tmp_path / "read"), "/pack"),),
        writable=((str(tmp_path / "write"), "/volumes/w"),),
        scratch_bytes=4096,
    )
    mounts = {mount["destination"]: mount for mount in _written(tmp_path / "b", plan, view)["mounts"]}
    assert set(mounts) == {"/proc", "/usr", "/tmp", "/dev/shm", "/sys", "/pack", "/volumes/w"}
    assert [place for place, mount in mounts.items() if "rw" in mount.get("options", ())] == ["/tmp", "/volumes/w"]
    assert "size=4096" in mounts["/tmp"]["options"]
    root = tmp_path / "b" / "rootfs"
    assert (root / "bin").readlink() == Path("usr/bin")
    assert (root / "volumes" / "w").is_dir()


def test_egress_socket_is_mounted_only_if_the_plan_has_one(tmp_path: Path, view: RootfsLayout) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        description = _written(tmp_path / "b", Plan(("x",), egress_socket=str(tmp_path / "s")), view)
    assert {"/run/egress.sock"} < {mount["destination"] for mount in description["mounts"]}
    assert (tmp_path / "b" / "rootfs" / "run" / "egress.sock").is_file()
