"""A node is known by its process id and start; the end removes what its record names, also if it was killed before."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from deploy.cluster.node.lifecycle import is_running, process_start, stop_node
from deploy.cluster.state_folder import NodeRecord, StateFolder, read_record

NO_PROCESS = 1 << 22


def test_another_process_with_the_same_id_is_not_the_node() -> None:
    own = NodeRecord([], pid=os.getpid(), started=process_start(os.getpid()))
    assert is_running(own)
    assert not is_running(replace(own, started=own.started - 1))
    assert not is_running(NodeRecord([]))
    assert not is_running(None)


def test_a_process_that_ended_has_no_start() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    try:
        assert process_start(child) == 0
    finally:
        os.waitpid(child, 0)
    assert process_start(NO_PROCESS) == 0


def test_a_node_that_was_killed_is_cleaned_up(tmp_path: Path) -> None:
    state, group = StateFolder(tmp_path / "state"), tmp_path / "group"
    (group / "kubepods").mkdir(parents=True)
    state.make()
    NodeRecord([str(group)], pid=os.getpid(), started=process_start(os.getpid()) - 1).write(state)
    assert stop_node(state)
    assert list(tmp_path.iterdir()) == []
    assert read_record(state) is None


def test_the_end_of_nothing_is_nothing(tmp_path: Path) -> None:
    assert not stop_node(StateFolder(tmp_path / "state"))
    assert list(tmp_path.iterdir()) == []
