"""The renderer of the test harness prints what kubectl prints."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.harness.kustomize import Manifest, render

FOLDERS = ["common", "gateway", "registry", "authz", "executor", "approval", "audit", "envoy"]
FOLDERS += [f"overlays/{name}" for name in ("local", "local-pods", "production", "ha")]


def identity(manifest: Manifest) -> tuple[str, ...]:
    metadata = manifest["metadata"]
    return manifest["kind"], metadata.get("namespace", ""), metadata["name"]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("folder", FOLDERS)
def test_the_renderer_agrees_with_kubectl(repository: Path, folder: str) -> None:
    place = repository / "deploy" / "k8s" / folder
    printed = subprocess.run(["kubectl", "kustomize", str(place)], capture_output=True, text=True, check=True).stdout
    expected = {identity(each): each for each in yaml.safe_load_all(printed)}
    assert {identity(each): each for each in render(place)} == expected
