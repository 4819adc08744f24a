"""The restore drill: a mesh that lost its database, its keys and Valkey comes back from a backup.

It runs after the others: the mesh then refuses their tokens. Figures are printed (`pytest -s`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.deployed_mesh import UPGRADE_ORDER, DeployedMesh, namespace_of
from tests.cluster.operator_commands import NAMESPACES, apply_manifests, deploy, lose_everything

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]
CALLS = 20


class Drill:
    """The steps of the drill, and how long they took."""

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

    def with_backup(self, verb: str, *words: str) -> dict[str, object]:
        """Runs `toolmesh deploy backup` or `restore` and returns what it prints."""
        options = [f"--passphrase-file={self.passphrase}", "--json", *words]
        document: dict[str, object] = json.loads(deploy(self.mesh, verb, str(self.backup), *options))
        return document

    def with_database(self, verb: str, *words: str) -> dict[str, object]:
        """The same, with PostgreSQL behind a forwarded port."""
        with self.mesh.forward("statefulset/postgres", 5432) as port:
            return self.with_backup(verb, f"--postgres=localhost:{port}", *words)

    def rebuild(self) -> None:
        """Follows docs/deploy.md, "Disaster recovery"."""
        with self.step("secrets"):
            apply_manifests(self.mesh, "common")
            self.with_backup("restore", "--only=secrets")
            deploy(self.mesh, "init-certs")
            addresses = ("--database=postgres.toolmesh:5432", "--redis=valkey.toolmesh:6379")
            deploy(self.mesh, "init-secrets", *addresses)
        with self.step("stores"):
            apply_manifests(self.mesh, "stores")
            for store in ("postgres", "valkey"):
                self.mesh.kubectl("audit", "rollout", "status", f"statefulset/{store}", "--timeout=300s")
        with self.step("database"):
            restored = self.with_database("restore")
            assert (restored["database"], restored["tokens_refused"]) == (True, True)
        with self.step("services"):
            apply_manifests(self.mesh, "overlays/local")
            self.mesh.wait_for(*UPGRADE_ORDER)


@pytest.fixture
def drill(mesh: DeployedMesh, tmp_path: Path) -> Drill:
    return Drill(mesh, tmp_path)


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
    mesh: DeployedMesh, drill: Drill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A verifier that pinned a later checkpoint would report what was lost.
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    token = mesh.mint()
    before = [call(mesh, token) for _ in range(CALLS)]
    made = drill.with_database("backup")
    after = call(mesh, token)
    assert on_record(mesh, token, before[0])
    assert on_record(mesh, token, after)
    with drill.step("losing everything"):
        lose_everything(mesh)
    with drill.step("back"):
        drill.rebuild()
    restored = DeployedMesh(mesh.cluster, tmp_path)
    assert is_refused(restored, token)
    renewed = restored.mint()
    assert not is_refused(restored, renewed)
    restored.call(renewed, "audit", "verify")
    assert [each for each in before if not on_record(restored, renewed, each)] == []
    assert not on_record(restored, renewed, after)
    assert all(restored.pods(part) for part in UPGRADE_ORDER)
    assert {namespace_of(part) for part in UPGRADE_ORDER} == set(NAMESPACES)
    report = {"backup": made["seconds"], **drill.figures}
    print(f"\nrestore drill: {made['bytes']} bytes, {made['records']} records; seconds: {json.dumps(report)}")  # noqa: T201
