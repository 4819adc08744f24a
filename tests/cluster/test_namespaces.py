"""The node's namespaces, with programs that only wait in place of Kubernetes: nothing of them reaches the machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.cluster.addresses import NODE, NODE_ADDRESS
from deploy.cluster.certificates import issue_certificates
from deploy.cluster.node.components import control_plane
from deploy.cluster.node.control_groups import group_name
from deploy.cluster.node.entry import NodeEntry, enter_node
from deploy.cluster.node.lifecycle import is_running, open_listener, start_node, stop_node
from deploy.cluster.state_folder import StateFolder, read_record
from tests.cluster.machine import MachineState, groups_named, processes_of, read_machine
from tests.cluster.waiting import wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture
def before() -> MachineState:
    return read_machine()


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    state = StateFolder(tmp_path / "cluster")
    state.make()
    for name, content in issue_certificates().items():
        (state.pki / name).write_bytes(content)
    return state


@pytest.fixture
def node(before: MachineState, state: StateFolder, tmp_path: Path) -> Iterator[NodeEntry]:
    programs = tmp_path / "cache" / "bin"
    programs.mkdir(parents=True)
    for component in control_plane(state):
        (programs / component.command[0]).write_text("#!/bin/sh\necho waiting\nexec sleep 100000\n")
        (programs / component.command[0]).chmod(0o755)
    with open_listener() as listener:
        start_node(state, tmp_path / "cache", listener)
    wait_until(lambda: all((state.log / f"{each.name}.log").exists() for each in control_plane(state)))
    yield enter_node(state)
    stop_node(state)


def assert_nothing_is_left(state: StateFolder, before: MachineState) -> None:
    wait_until(lambda: processes_of(state.root) == [])
    assert groups_named(group_name(state.root)) == []
    assert read_machine() == before
    assert [path.name for path in state.root.iterdir()] == ["log"]


def test_the_node_has_a_name_an_interface_and_folders_of_its_own(node: NodeEntry, before: MachineState) -> None:
    assert node.run("hostname").strip() == NODE
    assert str(NODE_ADDRESS) in node.run("ip", "-oneline", "address", "show")
    node.run("sh", "-c", "echo secret > /var/lib/kubelet/file; mkdir -p /var/lib/containerd /run/netns /var/log/pods")
    assert read_machine() == before


def test_the_node_ends_without_a_trace(node: NodeEntry, state: StateFolder, before: MachineState) -> None:
    assert len(groups_named(group_name(state.root))) > 0
    assert stop_node(state)
    assert_nothing_is_left(state, before)


@pytest.mark.parametrize("process", ["first process", "unshare"])
def test_a_node_that_was_killed_leaves_no_trace_either(
    node: NodeEntry, state: StateFolder, before: MachineState, process: str
) -> None:
    record = read_record(state)
    assert record is not None
    parent = int(Path(f"/proc/{record.pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(record.pid if process == "first process" else parent, signal.SIGKILL)
    wait_until(lambda: not is_running(record))
    assert stop_node(state)
    assert_nothing_is_left(state, before)


def test_a_component_that_is_killed_is_started_again(node: NodeEntry, state: StateFolder) -> None:
    log = state.log / "etcd.log"
    wait_until(lambda: "waiting" in log.read_text())
    node.run("pkill", "--full", "--oldest", "sleep 100000")
    wait_until(lambda: any("started again" in path.read_text() for path in state.log.glob("*.log")))


def test_the_kernel_settings_that_the_kubelet_sees_are_its_own(node: NodeEntry, before: MachineState) -> None:
    assert node.run("cat", "/run/kernel-settings/kernel.panic").strip() == "10"
    assert read_machine().settings == before.settings
