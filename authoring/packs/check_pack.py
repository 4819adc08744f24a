"""Checks a whole pack offline: description, files, imports, derived manifests and those written by hand."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from authoring.manifests.check_manifest import check_manifest
from authoring.packs.json_lines import line_of_pointer
from authoring.packs.manifest_files import FOLDER, stale_manifests
from authoring.packs.module_source import ModuleSource
from authoring.packs.pack_folder import derive_decorated, pack_modules
from authoring.packs.pack_library import library_of
from authoring.packs.pack_problem import PackProblem
from libs.common.entry_points import parse_command, parse_function
from services.executor.adapters.runners.packs.package_lock import LOCK, WheelError
from services.executor.adapters.runners.packs.packs import DESCRIPTION, Pack, PackError, copy_pack

_ENTRY_POINT = "/execution/entry_point"


@dataclass(frozen=True, slots=True)
class CheckedPack:
    """A pack: its name, the digest of its files, its manifests by tool id, and its problems in order of places."""

    name: str
    digest: str
    manifests: Mapping[str, Mapping[str, Any]]
    """The derived ones as they would be built, the others as they are written."""
    problems: list[PackProblem]
    derived: frozenset[str] = frozenset()
    """The tools whose manifests are derived from functions."""


def check_pack(folder: Path, *, require_built: bool = True) -> CheckedPack:
    """Check a pack. With `require_built` a stale manifest is a problem."""
    folder = folder.resolve()
    derived = derive_decorated(folder)
    manifests: dict[str, Mapping[str, Any]] = dict(derived.manifests)
    problems = list(derived.problems)
    with tempfile.TemporaryDirectory(prefix="toolmesh-check-") as scratch:
        pack = _copy(folder, Path(scratch) / "copy", problems)
    problems += _import_problems(folder, "" if pack is None else pack.lib)
    problems += _written_problems(folder, pack, manifests)
    if require_built:
        problems += _stale_problems(folder, derived.manifests)
    if not manifests and not problems:
        problems.append(
            PackProblem(folder / DESCRIPTION, 1, "the pack has neither a function with @tool nor manifests")
        )
    digest = "" if pack is None else pack.digest
    return CheckedPack(folder.name, digest, manifests, sorted(set(problems)), frozenset(derived.manifests))


def _copy(folder: Path, target: Path, problems: list[PackProblem]) -> Pack | None:
    """Copy the pack as an executor does, which refuses what no executor loads."""
    try:
        return copy_pack(folder, target)
    except PackError as error:
        if not any(problem.path.name in (DESCRIPTION, LOCK) for problem in problems):
            problems.append(PackProblem(folder / DESCRIPTION, 1, f"no executor loads the pack: {error}"))
    except OSError as error:
        problems.append(PackProblem(folder / DESCRIPTION, 1, f"cannot be read: {error.strerror}"))
    return None


def _import_problems(folder: Path, lib: str) -> Iterator[PackProblem]:
    """Find imports that fail in a sandbox, which has the standard library and the pack's own packages alone."""
    here = {"toolmesh_tool", folder.name, *sys.stdlib_module_names}
    for packages in _package_folders(folder, lib):
        here |= {path.name.partition(".")[0] for path in packages.iterdir()}
    for path in pack_modules(folder):
        try:
            source = ModuleSource(path)
        except (SyntaxError, ValueError):
            continue
        for name, line in source.imports():
            if name not in here:
                advice = f"bring it: toolmesh pack lock {folder.name} --add {name}"
                yield PackProblem(path, line, f"the sandbox has no package {name}; {advice}")


def _package_folders(folder: Path, lib: str) -> Iterator[Path]:
    if lib and (folder / lib).is_dir():
        yield folder / lib
    with suppress(WheelError, OSError):
        # Reported where the pack's code is imported.
        if (library := library_of(folder)) is not None:
            yield library


def _written_problems(
    folder: Path, pack: Pack | None, manifests: dict[str, Mapping[str, Any]]
) -> Iterator[PackProblem]:
    """Check the manifests that were not derived, and add them."""
    derived = {str(manifest["execution"]["entry_point"]): tool_id for tool_id, manifest in manifests.items()}
    for path in sorted((folder / FOLDER).glob("*.json")):
        if path.stem in derived.values():
            continue
        try:
            text = path.read_text(encoding="utf-8")
            document = json.loads(text)
        except json.JSONDecodeError as error:
            yield PackProblem(path, error.lineno, f"is no JSON: {error.msg}")
            continue
        except (OSError, UnicodeDecodeError):
            yield PackProblem(path, 1, "cannot be read")
            continue
        for problem in check_manifest(document):
            if problem.blocks:
                message = f"{problem.path or '/'}: {problem.message} [{problem.rule}] {problem.advice.text}".strip()
                yield PackProblem(path, line_of_pointer(text, problem.path), message)
        if missing := _missing_code(folder, pack, document, derived):
            yield PackProblem(path, line_of_pointer(text, _ENTRY_POINT), missing)
        if isinstance(document, dict) and isinstance(document.get("tool_id"), str):
            manifests[document["tool_id"]] = document


def _missing_code(folder: Path, pack: Pack | None, document: Any, derived: Mapping[str, str]) -> str:
    """Return why the entry point of a manifest is no code of this pack; empty if it is."""
    execution = document.get("execution") if isinstance(document, dict) else None
    entry_point = execution.get("entry_point") if isinstance(execution, dict) else None
    if not isinstance(entry_point, str) or pack is None:
        return ""
    if entry_point in derived:
        return f"its function has @tool and the manifest {derived[entry_point]}.json; delete this file"
    if function := parse_function(entry_point):
        if function.pack != pack.name:
            return f"its entry point is in the pack {function.pack}; write {pack.name}/{function.module}:..."
        return _missing_function(folder, function.module, function.function)
    command = parse_command(entry_point)
    if command is not None and command.pack == pack.name and command.program not in pack.programs:
        return f"{DESCRIPTION} offers no program {command.program}"
    return ""


def _missing_function(folder: Path, module: str, function: str) -> str:
    path = folder / module.replace(".", "/")
    files = [each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file()]
    if not files:
        return f"the pack has no module {module}"
    try:
        known = ModuleSource(files[0]).functions
    except (SyntaxError, ValueError):
        return ""
    return "" if function in known else f"the module {module} has no function {function}"


def _stale_problems(folder: Path, manifests: Mapping[str, Mapping[str, Any]]) -> Iterator[PackProblem]:
    for path in stale_manifests(folder, manifests):
        state = "is not what its function says" if path.exists() else "is missing"
        yield PackProblem(path, 1, f"{state}; run: toolmesh pack build {folder}")
