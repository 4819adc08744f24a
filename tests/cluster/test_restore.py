"""The restore drill: a mesh that lost its database, its keys and Valkey comes back from a backup.

It runs last: afterwards the mesh refuses the tokens of all other tests. Figures are printed (`pytest -s`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.deployed_mesh import UPGRADE_ORDER, DeployedMesh, namespace_of
from tests.cluster.running_cluster import REPOSITORY

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]
NAMESPACES = ("toolmesh", "toolmesh-executor")
MANIFESTS = REPOSITORY / "deploy" / "k8s"
CALLS = 20


class Operator:
    """The commands of the drill, and how long they took."""

    def __init__(self, mesh: DeployedMesh, folder: Path) -> None:
        self.mesh, self.backup = mesh, folder / "backup"
        self.passphrase = folder / "passphrase"
        self.passphrase.write_text("correct horse battery staple\n")
        self.figures: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.figures[name] = round(time.monotonic() - started, 1)

    def deploy(self, *words: str) -> str:
        """Runs `toolmesh deploy`."""
        command = [str(Path(sys.executable).with_name("toolmesh")), "deploy", *words]
        variables = {**os.environ, "KUBECONFIG": str(self.mesh.cluster.state.kubeconfig)}
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def with_backup(self, verb: str, *words: str) -> dict[str, object]:
        """Runs `toolmesh deploy backup` or `restore` and returns what it prints."""
        options = [f"--passphrase-file={self.passphrase}", "--json", *words]
        document: dict[str, object] = json.loads(self.deploy(verb, str(self.backup), *options))
        return document

    def with_database(self, verb: str, *words: str) -> dict[str, object]:
        """The same, with PostgreSQL behind a forwarded port."""
        with self.mesh.forward("statefulset/postgres", 5432) as port:
            return self.with_backup(verb, f"--postgres=localhost:{port}", *words)

    def kubectl(self, *words: str) -> None:
        done = self.mesh.cluster.kubectl(*words)
        assert done.returncode == 0, done.stderr

    def lose_everything(self) -> None:
        """Deletes all pods at once, then the namespaces with all that is in them."""
        for namespace in NAMESPACES:
            flags = ("--all", "--grace-period=0", "--force")
            self.kubectl("delete", f"--namespace={namespace}", "deployments,statefulsets,jobs", "--all")
            self.kubectl("delete", f"--namespace={namespace}", "pods", *flags)
        self.kubectl("delete", "namespaces", *NAMESPACES)

    def rebuild(self) -> None:
        """Follows docs/deploy.md, "Disaster recovery"."""
        with self.step("secrets"):
            self.kubectl("apply", f"--kustomize={MANIFESTS / 'common'}")
            self.with_backup("restore", "--only=secrets")
            self.deploy("init-certs")
            self.deploy("init-secrets", "--database=postgres.toolmesh:5432", "--redis=valkey.toolmesh:6379")
        with self.step("stores"):
            self.kubectl("apply", f"--kustomize={MANIFESTS / 'stores'}")
            for store in ("postgres", "valkey"):
                self.mesh.kubectl("audit", "rollout", "status", f"statefulset/{store}", "--timeout=300s")
        with self.step("database"):
            restored = self.with_database("restore")
            assert (restored["database"], restored["tokens_refused"]) == (True, True)
        with self.step("services"):
            self.kubectl("apply", f"--kustomize={MANIFESTS / 'overlays' / 'local'}")
            self.mesh.wait_for(*UPGRADE_ORDER)


@pytest.fixture
def operator(mesh: DeployedMesh, tmp_path: Path) -> Operator:
    return Operator(mesh, tmp_path)


def call(mesh: DeployedMesh, token: str) -> str:
    """Calls a tool and returns the id of the invocation."""
    return str(json.loads(mesh.call(token, "call", "echo", '{"text": "hello"}', "--json"))["invocation_id"])


def on_record(mesh: DeployedMesh, token: str, invocation: str) -> bool:
    return invocation in mesh.call(token, "audit", "tail", f"--invocation={invocation}", "--json")


def is_refused(mesh: DeployedMesh, token: str) -> bool:
    try:
        call(mesh, token)
    except AssertionError:
        return True
    return False


def test_a_mesh_that_lost_everything_comes_back(
    mesh: DeployedMesh, operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A verifier that pinned a later checkpoint would report what was lost.
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    token = mesh.mint()
    before = [call(mesh, token) for _ in range(CALLS)]
    made = operator.with_database("backup")
    after = call(mesh, token)
    assert on_record(mesh, token, before[0])
    assert on_record(mesh, token, after)
    with operator.step("losing everything"):
        operator.lose_everything()
    with operator.step("back"):
        operator.rebuild()
    restored = DeployedMesh(mesh.cluster, tmp_path)
    assert is_refused(restored, token)
    renewed = restored.mint()
    assert not is_refused(restored, renewed)
    restored.call(renewed, "audit", "verify")
    assert [each for each in before if not on_record(restored, renewed, each)] == []
    assert not on_record(restored, renewed, after)
    assert all(restored.pods(part) for part in UPGRADE_ORDER)
    assert {namespace_of(part) for part in UPGRADE_ORDER} == set(NAMESPACES)
    report = {"backup": made["seconds"], **operator.figures}
    print(f"\nrestore drill: {made['bytes']} bytes, {made['records']} records; seconds: {json.dumps(report)}")  # noqa: T201
