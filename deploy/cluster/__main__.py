"""`python -m deploy.cluster`: a one-node Kubernetes on this machine, until it is ended."""

from __future__ import annotations

import argparse
import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.cluster.errors import ClusterError
from deploy.cluster.node.entry import enter_node
from deploy.cluster.node.lifecycle import stop_node
from deploy.cluster.progress import Progress
from deploy.cluster.requirements import require_root
from deploy.cluster.state_folder import StateFolder
from deploy.cluster.up import add_agent_sandbox, bring_up


def main() -> int:
    """Runs one command. Returns the exit status."""
    arguments = _parser().parse_args()
    state = StateFolder(arguments.state.absolute())
    try:
        require_root()
        with _alone(state) if arguments.command in ("up", "down") else _beside_others():
            _run(arguments, state)
    except ClusterError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _run(arguments: argparse.Namespace, state: StateFolder) -> None:
    progress = Progress()
    if arguments.command == "up":
        bring_up(state, progress)
    elif arguments.command == "down":
        ended = stop_node(state)
        progress.say(f"The cluster ended after {progress.seconds():.1f} s" if ended else "No cluster runs")
    elif arguments.command == "add-agent-sandbox":
        add_agent_sandbox(state, progress)
    elif arguments.command == "import":
        for archive in arguments.archives:
            with progress.step(f"import {archive}"):
                enter_node(state).import_image(archive)
    else:
        command = enter_node(state).command(arguments.words)
        os.execvp(command[0], command)  # noqa: S606


@contextmanager
def _alone(state: StateFolder) -> Iterator[None]:
    """Holds off a second `up` or `down` of the same cluster. The lock is on the folder, so it leaves no file."""
    state.root.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(state.root.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


@contextmanager
def _beside_others() -> Iterator[None]:
    yield


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m deploy.cluster", description=__doc__)
    parser.add_argument("--state", type=Path, default=Path(".toolmesh") / "cluster", help="folder of the cluster")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up", help="build what is missing and start the cluster")
    commands.add_parser("down", help="end the cluster and remove all but its logs")
    commands.add_parser("add-agent-sandbox", help="build and install agent-sandbox, for tool pods by SandboxClaims")
    images = commands.add_parser("import", help="import images from archives")
    images.add_argument("archives", metavar="FILE.tar", type=Path, nargs="+")
    inside = commands.add_parser("exec", help="run a command inside of the node, such as: exec -- kubectl get pods -A")
    inside.add_argument("words", metavar="COMMAND", nargs="+")
    return parser


if __name__ == "__main__":
    sys.exit(main())
