"""Configuration of the node's parts: it stays inside of the state folder and changes nothing of the machine."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from deploy.cluster.addresses import DNS_SERVICE, PODS
from deploy.cluster.certificates import issue_certificates
from deploy.cluster.kubeconfig import USERS
from deploy.cluster.node.components import KERNEL_SETTINGS, control_plane, node_agents
from deploy.cluster.node.configuration import PAUSE_IMAGE, render_files
from deploy.cluster.state_folder import StateFolder

STATE = StateFolder(Path("/work/my checkout/.toolmesh/cluster"))
CACHE = Path("/home/me/.cache/toolmesh/cluster/0123")
RUNTIME = "io.containerd.cri.v1.runtime"


def render() -> dict[str, str]:
    return dict(render_files(STATE, CACHE, open_files=20000))


def containerd() -> dict[str, Any]:
    return tomllib.loads(render()["containerd.toml"])


def test_containerd_keeps_its_state_in_the_state_folder_and_finds_its_plugins() -> None:
    document = containerd()
    assert document["root"] == str(STATE.containerd)
    assert document["plugins"][RUNTIME]["cni"] == {
        "bin_dirs": [str(CACHE / "bin")],
        "conf_dir": str(STATE.config / "cni"),
    }
    assert document["plugins"]["io.containerd.cri.v1.images"]["pinned_images"] == {"sandbox": PAUSE_IMAGE}


def test_gvisor_is_a_runtime_beside_runc() -> None:
    runtimes = containerd()["plugins"][RUNTIME]["containerd"]["runtimes"]
    assert list(runtimes) == ["runc", "runsc"]
    assert runtimes["runsc"]["options"]["ConfigPath"] == str(STATE.config / "runsc.toml")
    assert "runsc.toml" in render()


def test_the_kubelet_asks_who_calls_and_changes_no_kernel_setting() -> None:
    document = json.loads(render()["kubelet.yaml"])
    assert document["authentication"]["anonymous"] == {"enabled": False}
    assert document["authorization"] == {"mode": "Webhook"}
    assert (document["protectKernelDefaults"], document["failCgroupV1"]) == (True, False)
    assert (document["clusterDNS"], document["maxOpenFiles"]) == ([str(DNS_SERVICE)], 20000)


def test_pods_get_addresses_of_the_network_that_the_proxy_knows() -> None:
    (bridge, _) = json.loads(render()["cni/10-toolmesh.conflist"])["plugins"]
    assert bridge["ipam"]["ranges"] == [[{"subnet": str(PODS)}]]
    assert json.loads(render()["kube-proxy.yaml"])["clusterCIDR"] == str(PODS)


def test_components_name_only_files_that_a_start_writes() -> None:
    written = {STATE.pki / name for name in issue_certificates()}
    written |= {STATE.pki / f"{user}.kubeconfig" for user in USERS}
    written |= {STATE.config / name for name in render()}
    commands = [each.command for each in (*control_plane(STATE), *node_agents(STATE, Path("/run/settings")))]
    named = {Path(word.rpartition("=")[2]) for command in commands for word in command if "/pki/" in word}
    configured = {Path(word.rpartition("=")[2]) for command in commands for word in command if "/config/" in word}
    assert named | configured <= written
    assert len(named) > 10


def test_the_api_server_refuses_strangers() -> None:
    (command,) = [each.command for each in control_plane(STATE) if each.name == "kube-apiserver"]
    assert {"--anonymous-auth=false", "--authorization-mode=Node,RBAC"} <= set(command)


def test_only_the_kubelet_sees_other_kernel_settings() -> None:
    agents = {each.name: each.command for each in node_agents(STATE, Path("/run/settings"))}
    script = next(word for word in agents["kubelet"] if "mount --bind" in word)
    assert all(f"/proc/sys/{name}" in script for name in KERNEL_SETTINGS)
    assert [name for name, command in agents.items() if command[0] == "unshare"] == ["kubelet"]


def test_containerd_makes_no_folder_for_programs_on_the_machine() -> None:
    assert "io.containerd.internal.v1.opt" in containerd()["disabled_plugins"]
