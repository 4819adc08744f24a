"""Applies an overlay without rolling it out: deployments keep their pods, and their new templates are returned."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from localmesh.upgrade.deployments import KubernetesDeployments, Template


class OverlayError(Exception):
    """The overlay was not applied. The message is one sentence."""


def stage_overlay(
    deployments: KubernetesDeployments, parts: Sequence[str], folder: Path, context: str = ""
) -> dict[str, Template]:
    """Apply an overlay and return the templates that it has for the parts, which keep their own. Raises OverlayError.

    Configuration, jobs of migrations and network policies are applied. Parts are paused meanwhile, so that none begins.
    """
    if paused := [part for part in parts if deployments.is_paused(part)]:
        raise OverlayError(f"{paused[0]} is paused: finish that with `kubectl rollout resume` or `undo` first")
    former = {part: deployments.read_template(part) for part in parts}
    for part in parts:
        deployments.set_paused(part, paused=True)
    try:
        _apply(folder, context)
        return {part: deployments.read_template(part) for part in parts}
    finally:
        for part in parts:
            deployments.replace_template(part, former[part])
            deployments.set_paused(part, paused=False)


def _apply(folder: Path, context: str) -> None:
    words = ["kubectl", *([f"--context={context}"] if context else []), "apply", f"--kustomize={folder}"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise OverlayError("kubectl is not on the PATH") from None
    if done.returncode != 0:
        raise OverlayError(f"kubectl apply failed: {done.stderr.strip()[-600:]}")
