"""Starts the node's namespaces from outside, and ends them without a trace."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from deploy.cluster.addresses import LOOPBACK
from deploy.cluster.errors import ClusterError
from deploy.cluster.node.control_groups import Hierarchy, find_hierarchies, group_name, make_groups, remove_groups
from deploy.cluster.state_folder import NodeRecord, StateFolder, read_record

REPOSITORY = Path(__file__).resolve().parents[3]
# Joins the control groups before `unshare`, because a control group namespace begins at the groups of that moment.
_JOIN = 'while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs"; shift; done; shift; exec "$@"'
NAMESPACES = ("--net", "--mount", "--pid", "--uts", "--ipc", "--cgroup")
# Killed processes that wait for a disk may need a while.
_END_SECONDS = 60.0
_START_SECONDS = 30.0
_PAUSE_SECONDS = 0.05


def start_node(state: StateFolder, cache: Path, listener: socket.socket) -> NodeRecord:
    """Starts the node and returns its record, which is written before anything is made on the machine."""
    hierarchies = find_hierarchies()
    groups = [hierarchy.own_group / group_name(state.root) for hierarchy in hierarchies]
    record = NodeRecord([str(group) for group in groups], api_port=listener.getsockname()[1], cache=str(cache))
    record.write(state)
    make_groups(groups)
    unshare = _unshare(state, cache, listener, hierarchies, groups)
    pid = _first_process(unshare)
    record = replace(record, pid=pid, started=process_start(pid))
    record.write(state)
    return record


def is_running(record: NodeRecord | None) -> bool:
    """Tells whether the node of a record runs. Another process with its id is not it."""
    return record is not None and record.pid != 0 and process_start(record.pid) == record.started


def stop_node(state: StateFolder) -> bool:
    """Ends the node and removes all that it left. Returns False if there was nothing."""
    record = read_record(state)
    if record is None:
        return False
    if is_running(record):
        os.kill(record.pid, signal.SIGKILL)
        _wait_for_end(record)
    remove_groups([Path(group) for group in record.control_groups])
    state.remove()
    return True


def open_listener() -> socket.socket:
    """Opens a socket on a free port of the machine's loopback, for the API server."""
    listener = socket.create_server((str(LOOPBACK), 0), backlog=128)
    listener.set_inheritable(True)
    return listener


def process_start(pid: int) -> int:
    """Returns when a process started, in ticks since the machine's start; 0 if there is none or it has ended."""
    try:
        # The name is in parentheses and may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[0] == "Z" else int(fields[19])


def _unshare(
    state: StateFolder, cache: Path, listener: socket.socket, hierarchies: Sequence[Hierarchy], groups: Sequence[Path]
) -> subprocess.Popen[bytes]:
    first = [sys.executable, "-m", "deploy.cluster.node.first_process", f"--state={state.root}", f"--cache={cache}"]
    first += [f"--listener={listener.fileno()}", *(f"--hierarchy={each.options}" for each in hierarchies)]
    # If `unshare` itself is killed, the kernel kills the node.
    unshare = ["unshare", *NAMESPACES, "--fork", "--mount-proc", "--kill-child=SIGKILL", *first]
    command = ["sh", "-ec", _JOIN, "sh", *map(str, groups), "--", *unshare]
    with (state.log / "node.log").open("ab") as log:
        return subprocess.Popen(
            command,
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=[listener.fileno()],
        )


def _first_process(unshare: subprocess.Popen[bytes]) -> int:
    deadline = time.monotonic() + _START_SECONDS
    children = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children")
    while time.monotonic() < deadline and unshare.poll() is None:
        if pids := children.read_text().split():
            return int(pids[0])
        time.sleep(_PAUSE_SECONDS)
    raise ClusterError("The node's namespaces could not be made; log/node.log of the state folder says why.")


def _wait_for_end(record: NodeRecord) -> None:
    deadline = time.monotonic() + _END_SECONDS
    while is_running(record):
        if time.monotonic() > deadline:
            raise ClusterError(f"The node's first process {record.pid} was killed but has not ended.")
        time.sleep(_PAUSE_SECONDS)
