"""Commands inside of the node's namespaces."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from deploy.cluster.errors import ClusterError
from deploy.cluster.node.lifecycle import NAMESPACES, is_running
from deploy.cluster.state_folder import NodeRecord, StateFolder, read_record


class NodeEntry:
    """Runs commands inside of a running node, with its programs first on the PATH."""

    def __init__(self, state: StateFolder, record: NodeRecord) -> None:
        self._state, self._record = state, record

    @property
    def cache(self) -> Path:
        """The folder of programs, images and manifests that the node was started with."""
        return Path(self._record.cache)

    def command(self, words: Sequence[str]) -> list[str]:
        """Returns the command that runs another in the node, in the caller's folder and as an administrator."""
        variables = [
            f"KUBECONFIG={self._state.pki / 'admin.kubeconfig'}",
            # In the caller's home it would outlive the node.
            "KUBECACHEDIR=/run/kubectl",
            f"PATH={self.cache / 'bin'}:{self._state.programs}:{os.environ['PATH']}",
        ]
        enter = ["nsenter", f"--target={self._record.pid}", *NAMESPACES]
        return [*enter, "env", f"--chdir={Path.cwd()}", *variables, *words]

    def run(self, *words: str, seconds: float = 120) -> str:
        """Runs a command and returns its output. Raises ClusterError with its errors if it fails."""
        done = subprocess.run(self.command(words), capture_output=True, text=True, timeout=seconds, check=False)
        if done.returncode:
            raise ClusterError(f"`{' '.join(words)}` failed in the node: {done.stderr.strip()[-1500:]}")
        return done.stdout

    def import_image(self, archive: Path) -> None:
        """Imports the images of an archive, as `docker save` and OCI tools write it."""
        self.run("ctr", "--namespace=k8s.io", "images", "import", str(archive.absolute()), seconds=900)


def enter_node(state: StateFolder) -> NodeEntry:
    """Returns the way into the running node. Raises ClusterError if none runs."""
    record = read_record(state)
    if record is None or not is_running(record):
        raise ClusterError("The cluster does not run. Start it with: make cluster-up")
    return NodeEntry(state, record)
