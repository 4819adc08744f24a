"""`toolmesh deploy backup` and `restore` at the command line: figures, advice and exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from localmesh.commands import register
from localmesh.tests.cluster_backup.conftest import LOG_SIZE, Cluster


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let the commands find the secrets of a cluster under every context."""

    def use(cluster: Cluster) -> None:
        monkeypatch.setattr("localmesh.deploy.secret_store.KubernetesSecrets", lambda context: cluster.store)

    return use


def run(verb: str, folder: Path, passphrase: Path, *words: str) -> tuple[int, Any]:
    app = typer.Typer()
    register(app)
    options = [str(folder), f"--passphrase-file={passphrase}", "--json", *words]
    ran = CliRunner().invoke(app, ["deploy", verb, *options])
    return ran.exit_code, json.loads(ran.stdout)


def test_a_backup_and_its_restore_print_figures(
    mesh: Cluster, lost: Cluster, choose: Any, tmp_path: Path, passphrase_file: Path
) -> None:
    choose(mesh)
    code, made = run("backup", tmp_path / "one", passphrase_file)
    assert (code, made["records"], made["bytes"] > 0, made["seconds"] > 0) == (0, LOG_SIZE, True, True)
    choose(lost)
    code, done = run("restore", tmp_path / "one", passphrase_file, "--only", "secrets")
    assert (code, done["database"], "sealing-keys" in done["secrets"]) == (0, False, True)
    code, done = run("restore", tmp_path / "one", passphrase_file)
    assert (code, done["database"], done["tokens_refused"]) == (0, True, True)


def test_what_cannot_be_done_ends_with_a_reason(
    mesh: Cluster, choose: Any, tmp_path: Path, passphrase_file: Path
) -> None:
    choose(mesh)
    code, refused = run("restore", tmp_path, passphrase_file)
    assert (code, bool(refused["error"])) == (1, True)
    run("backup", tmp_path / "one", passphrase_file)
    code, refused = run("restore", tmp_path / "one", passphrase_file)
    assert (code, bool(refused["error"])) == (3, True)
    assert run("backup", tmp_path / "two", tmp_path / "no-passphrase")[0] == 1


def test_a_cluster_that_does_not_answer_is_said_plainly(
    tmp_path: Path, passphrase_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = {"name": "one", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "one", "context": {"cluster": "one", "user": "one"}}
    document = {
        "current-context": "one",
        "contexts": [context],
        "clusters": [cluster],
        "users": [{"name": "one", "user": {}}],
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(document))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    code, refused = run("backup", tmp_path / "one", passphrase_file)
    assert (code, bool(refused["error"])) == (1, True)
