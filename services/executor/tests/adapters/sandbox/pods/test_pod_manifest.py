"""The pod of a plan: its limits, what it can write and what it is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from services.executor.adapters.sandbox.pods.pod_api import LeaseState
from services.executor.adapters.sandbox.pods.pod_manifest import OVERHEAD_BYTES, PodConfig, describe_pod
from services.executor.adapters.sandbox.port import Plan

CONFIG = PodConfig("tools", "image:1", "/usr/bin/python3")
PLAN = Plan(("/bin/true",), memory_bytes=100 << 20, scratch_bytes=5 << 20, millicpus=250)


def described(plan: Plan = PLAN, config: PodConfig = CONFIG) -> dict[str, Any]:
    return describe_pod(config, "tool-1", "executor-1", LeaseState("executor-1", "uid-1", ""), plan, ["/packs/one"], 7)


def container(name: str, plan: Plan = PLAN) -> dict[str, Any]:
    [found] = [each for each in described(plan)["spec"]["containers"] if each["name"] == name]
    return dict(found)


def writable(name: str, plan: Plan = PLAN) -> set[str]:
    return {mount["mountPath"] for mount in container(name, plan)["volumeMounts"] if not mount.get("readOnly")}


def test_limits_are_those_of_the_plan() -> None:
    limits = container("tool")["resources"]["limits"]
    assert (limits["memory"], limits["cpu"]) == (str((100 << 20) + OVERHEAD_BYTES), "250m")
    sizes = {volume["name"]: volume["emptyDir"]["sizeLimit"] for volume in described()["spec"]["volumes"]}
    assert sizes["tmp"] == str(5 << 20)


def test_a_tool_can_write_to_tmp_alone() -> None:
    assert writable("tool") == {"/tmp"}
    assert writable("tool", Plan(PLAN.argv, egress_socket="/x")) == {"/tmp", "/run"}
    assert writable("loader") == {"/packs/one"}
    hidden = {mount["mountPath"] for mount in container("tool")["volumeMounts"] if mount.get("readOnly")}
    assert hidden == {"/packs/one", "/dev/shm", "/app"}


def test_a_pod_has_no_token_no_root_and_no_capability() -> None:
    spec = described()["spec"]
    assert not spec["automountServiceAccountToken"]
    assert not spec["enableServiceLinks"]
    assert spec["securityContext"]["runAsNonRoot"]
    for each in spec["containers"]:
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_a_pod_belongs_to_its_executors_lease_and_does_not_live_for_ever() -> None:
    pod = described()
    [owner] = pod["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Lease", "uid-1")
    assert pod["spec"]["activeDeadlineSeconds"] == 86_400
    assert pod["spec"]["restartPolicy"] == "Never"


@pytest.mark.parametrize(("runtime", "kept"), [("", {"hostUsers": False}), ("gvisor", {"runtimeClassName": "gvisor"})])
def test_processes_are_counted_in_a_user_namespace_or_by_the_runtime(runtime: str, kept: dict[str, Any]) -> None:
    spec = described(config=PodConfig("tools", "image:1", "/usr/bin/python3", runtime))["spec"]
    assert {name: spec[name] for name in ("hostUsers", "runtimeClassName") if name in spec} == kept
