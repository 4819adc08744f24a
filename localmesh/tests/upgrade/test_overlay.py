"""An overlay is applied, and no part begins to roll out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import kubernetes
import pytest

from localmesh.deploy.layout import Namespaces
from localmesh.tests.upgrade.conftest import PARTS, FakeCluster, template
from localmesh.upgrade.deployments import KubernetesDeployments
from localmesh.upgrade.overlay import OverlayError, stage_overlay

# In kubectl's place: gives every deployment of an overlay a new image, as an apply would.
KUBECTL = """\
#!{python}
import json, sys, urllib.request
[folder] = [word.partition("=")[2] for word in sys.argv if word.startswith("--kustomize=")]
for path, change in json.load(open(folder + "/changes.json")).items():
    headers = {{"Content-Type": "application/strategic-merge-patch+json"}}
    request = urllib.request.Request(path, json.dumps(change).encode(), headers, method="PATCH")
    urllib.request.urlopen(request).read()
sys.exit({status})
"""


@pytest.fixture
def deployments(client: Any) -> KubernetesDeployments:
    return KubernetesDeployments(client, Namespaces())


def overlay(folder: Path, monkeypatch: pytest.MonkeyPatch, status: int = 0) -> Path:
    server = kubernetes.client.Configuration.get_default_copy().host
    paths = {part: f"{server}/apis/apps/v1/namespaces/toolmesh/deployments/{part}" for part in ("audit", "authz")}
    changes = {path: {"spec": {"template": template(f"{part}:2")}} for part, path in paths.items()}
    (folder / "changes.json").write_text(json.dumps(changes))
    (folder / "kubectl").write_text(KUBECTL.format(python=sys.executable, status=status))
    (folder / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_parts_keep_their_pods_and_their_new_templates_are_known(
    cluster: FakeCluster, deployments: KubernetesDeployments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    templates = stage_overlay(deployments, PARTS, overlay(tmp_path, monkeypatch))
    assert (templates["audit"], templates["gateway"]) == (template("audit:2"), template("gateway:1"))
    assert [part for part in PARTS if cluster.image(part) != f"{part}:1" or deployments.is_paused(part)] == []
    assert cluster.history == []


def test_an_overlay_that_cannot_be_applied_leaves_the_parts_as_they_were(
    cluster: FakeCluster, deployments: KubernetesDeployments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OverlayError):
        stage_overlay(deployments, PARTS, overlay(tmp_path, monkeypatch, status=1))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(OverlayError):
        stage_overlay(deployments, PARTS, tmp_path)
    assert [part for part in PARTS if cluster.image(part) != f"{part}:1" or deployments.is_paused(part)] == []
    assert cluster.history == []


def test_a_part_that_is_paused_already_is_refused(
    cluster: FakeCluster, deployments: KubernetesDeployments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployments.set_paused("gateway", paused=True)
    with pytest.raises(OverlayError):
        stage_overlay(deployments, PARTS, overlay(tmp_path, monkeypatch))
    assert not deployments.is_paused("audit")
