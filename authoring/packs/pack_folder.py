"""Reads a pack's folder: imports its modules, finds its decorated functions and derives their manifests."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from authoring.manifests.check_manifest import check_manifest
from authoring.packs.derive_manifest import derive_manifest
from authoring.packs.derive_schema import UnderivableError
from services.executor.adapters.runners.packs.packs import DESCRIPTION

_WORKER = Path(__file__).resolve().parents[2] / "services" / "executor" / "worker"
_SKIPPED = {"manifests", "bin", "lib", "tests", "__pycache__"}


@dataclass(frozen=True, slots=True)
class PackProblem:
    """A problem of a pack, with its file and line."""

    place: str
    message: str


@dataclass(frozen=True, slots=True)
class DerivedPack:
    """The manifests of a pack by tool id, and its problems."""

    manifests: dict[str, dict[str, Any]]
    problems: list[PackProblem]


def derive_pack(folder: Path) -> DerivedPack:
    """Derive the manifests of every decorated function of a pack. The code of the pack is imported."""
    folder = folder.resolve()
    try:
        description = json.loads((folder / DESCRIPTION).read_text())
        pack = str(description["name"])
    except (OSError, ValueError, KeyError, TypeError):
        return DerivedPack({}, [PackProblem(f"{folder / DESCRIPTION}:1", 'is not {"name": "..."}')])
    if pack != folder.name:
        return DerivedPack(
            {}, [PackProblem(f"{folder / DESCRIPTION}:1", f"its name is not the folder's: {folder.name}")]
        )
    manifests: dict[str, dict[str, Any]] = {}
    problems: list[PackProblem] = []
    with _importable(folder.parent, pack):
        for path in _modules(folder):
            problems += _derive_module(path, folder, pack, manifests)
    if not manifests and not problems:
        problems.append(PackProblem(f"{folder}:1", "has no function with @tool"))
    return DerivedPack(manifests, problems)


def _derive_module(path: Path, folder: Path, pack: str, manifests: dict[str, dict[str, Any]]) -> list[PackProblem]:
    from toolmesh_tool import Call  # type: ignore[import-not-found]

    name = ".".join((pack, *path.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__")
    try:
        module = importlib.import_module(name)
    except Exception as error:
        return [PackProblem(f"{path}:1", f"cannot be imported: {type(error).__name__}: {error}")]
    problems: list[PackProblem] = []
    for entry in [each for each in vars(module).values() if getattr(each, "tool_function", None) is not None]:
        if entry.__module__ != name:
            continue
        place = f"{path}:{inspect.getsourcelines(entry.tool_function)[1]}"
        try:
            manifest = derive_manifest(entry, pack, Call)
        except UnderivableError as error:
            problems.append(PackProblem(place, f"{error.place}: {error.message}"))
            continue
        if manifest["tool_id"] in manifests:
            problems.append(PackProblem(place, f"a second tool has the name {manifest['tool_id']}"))
        manifests[manifest["tool_id"]] = manifest
        problems += [
            PackProblem(place, f"{each.path}: {each.message} [{each.rule}] {each.advice.text}".strip())
            for each in check_manifest(manifest)
            if each.blocks
        ]
    return problems


def _modules(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*.py")):
        if not _SKIPPED & set(path.relative_to(folder).parts):
            yield path


@contextmanager
def _importable(parent: Path, pack: str) -> Iterator[None]:
    """Make the pack and `toolmesh_tool` importable, as they are inside a sandbox."""
    before, known = list(sys.path), set(sys.modules)
    sys.path[:0] = [str(parent), str(_WORKER)]
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path[:] = before
        for name in set(sys.modules) - known:
            if name.partition(".")[0] in (pack, "toolmesh_tool"):
                del sys.modules[name]
