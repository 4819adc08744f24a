"""One round of development: checks a pack, builds its manifests, loads it on the local mesh and registers its tools."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolmesh_sdk.errors import ToolmeshError

from authoring.manifests.needed_secrets import needed_secrets
from authoring.packs.check_pack import CheckedPack, check_pack
from authoring.packs.install_pack import install_pack
from authoring.packs.loaded_packs import NotLoadedError, folder_for, wait_until_loaded
from authoring.packs.manifest_files import manifest_path, stale_manifests, write_manifests
from authoring.packs.pack_problem import PackProblem
from services.executor.adapters.runners.packs.packs import DESCRIPTION, Pack, PackError, copy_pack

LOAD_SECONDS = 30.0
Register = Callable[[Mapping[str, Any]], tuple[str, bool]]
"""Registers a manifest; returns the name of the version, and whether it is new."""


@dataclass(frozen=True, slots=True)
class Round:
    """The outcome of one round: what was loaded and registered, and the problems."""

    digest: str = ""
    versions: list[tuple[str, bool]] = field(default_factory=list)
    problems: list[PackProblem] = field(default_factory=list)
    seconds: float = 0.0
    derived: frozenset[str] = frozenset()
    """The tools whose manifests this command writes."""
    secrets: dict[str, str] = field(default_factory=dict)
    """The command that sets each secret which the tools need."""


def develop_pack(
    folder: Path, runtime: dict[str, Any], register: Register, expect: Callable[[Iterable[Mapping[str, Any]]], None]
) -> Round:
    """Bring the local mesh to what the folder has. With a problem in the folder the mesh stays as it is."""
    began, folder = time.monotonic(), folder.resolve()
    checked = check_pack(folder, require_built=False)
    if checked.problems:
        return Round(problems=checked.problems, derived=checked.derived)
    write_manifests(stale_manifests(folder, _derived(folder, checked)))
    try:
        pack = _load(folder, runtime)
    except (NotLoadedError, PackError, OSError) as error:
        return Round(problems=[PackProblem(folder / DESCRIPTION, 1, str(error))], derived=checked.derived)
    versions: list[tuple[str, bool]] = []
    problems: list[PackProblem] = []
    expect(checked.manifests.values())
    for tool_id, manifest in checked.manifests.items():
        try:
            versions.append(register(manifest))
        except ToolmeshError as error:
            problems += _refusal(manifest_path(folder, tool_id), error)
    needed = needed_secrets(checked.manifests.values())
    return Round(pack.digest, versions, problems, time.monotonic() - began, checked.derived, needed)


def _derived(folder: Path, checked: CheckedPack) -> dict[str, Mapping[str, Any]]:
    return {tool_id: checked.manifests[tool_id] for tool_id in checked.derived}


def _load(folder: Path, runtime: dict[str, Any]) -> Pack:
    packs = folder_for(folder, runtime["packs"])
    if packs is not None:
        pack = install_pack(folder, packs)
    else:
        with tempfile.TemporaryDirectory(prefix="toolmesh-dev-") as scratch:
            pack = copy_pack(folder, Path(scratch) / "copy")
    wait_until_loaded(runtime, pack.name, pack.digest, LOAD_SECONDS)
    return pack


def _refusal(path: Path, error: ToolmeshError) -> list[PackProblem]:
    if not error.violations:
        return [PackProblem(path, 1, f"was refused: {error.message}")]
    return [
        PackProblem(path, 1, f"was refused: {each.path}: {each.message} [{each.rule}]") for each in error.violations
    ]
