"""Paths of a cluster's state, and the record of what runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

# Everything but the logs, which a person may want to read after the end.
_ENDS_WITH_THE_NODE = ("bin", "config", "containerd", "etcd", "kubelet", "pki", "var", "kubeconfig", "node.json")


@dataclass(frozen=True)
class StateFolder:
    """The folder of one cluster."""

    root: Path

    @property
    def programs(self) -> Path:
        """Programs of the machine that the node uses beside its own."""
        return self.root / "bin"

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def config(self) -> Path:
        return self.root / "config"

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def etcd(self) -> Path:
        return self.root / "etcd"

    @property
    def containerd(self) -> Path:
        return self.root / "containerd"

    @property
    def kubelet(self) -> Path:
        return self.root / "kubelet"

    @property
    def var(self) -> Path:
        """What the node changes under /var, where the logs of pods are."""
        return self.root / "var"

    @property
    def kubeconfig(self) -> Path:
        return self.root / "kubeconfig"

    @property
    def record(self) -> Path:
        return self.root / "node.json"

    def make(self) -> None:
        """Makes the folders that a node needs."""
        self.root.mkdir(parents=True, exist_ok=True)
        for folder in (self.programs, self.log, self.config, self.containerd, self.kubelet, self.var):
            folder.mkdir(exist_ok=True)
        for private in (self.pki, self.etcd):
            private.mkdir(mode=0o700, exist_ok=True)

    def remove(self) -> None:
        """Removes everything but the logs, and the folder itself if it is empty then."""
        for name in _ENDS_WITH_THE_NODE:
            path = self.root / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        for folder in (self.log, self.root):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()


@dataclass(frozen=True)
class NodeRecord:
    """What a start left on the machine: enough to end it, even after its processes were killed.

    A process is known by its id and the moment of its start, because ids are used again. Before the start both are 0.
    """

    control_groups: Sequence[str]
    pid: int = 0
    started: int = 0
    api_port: int = 0
    cache: str = ""

    def write(self, state: StateFolder) -> None:
        """Replaces the record of a state folder."""
        fresh = state.record.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(self)))
        fresh.rename(state.record)


def read_record(state: StateFolder) -> NodeRecord | None:
    """Returns the record of the last start; None if the cluster was ended or never started."""
    try:
        return NodeRecord(**json.loads(state.record.read_text()))
    except FileNotFoundError:
        return None
