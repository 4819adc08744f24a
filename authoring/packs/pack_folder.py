"""Reads a pack's folder: imports its modules, finds its decorated functions and derives their manifests."""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from authoring.manifests.check_manifest import check_manifest
from authoring.packs.derive_manifest import derive_manifest
from authoring.packs.derive_schema import UnderivableError
from authoring.packs.module_source import ModuleSource
from authoring.packs.pack_library import library_of
from authoring.packs.pack_problem import PackProblem
from services.executor.adapters.runners.packs.package_lock import LOCK, WheelError
from services.executor.adapters.runners.packs.packs import DESCRIPTION

_WORKER = Path(__file__).resolve().parents[2] / "services" / "executor" / "worker"
_SKIPPED = {"manifests", "bin", "lib", "wheels", "tests", "__pycache__"}


@dataclass(frozen=True, slots=True)
class DerivedPack:
    """The manifests of a pack by tool id, and its problems."""

    manifests: dict[str, dict[str, Any]]
    problems: list[PackProblem]


def derive_pack(folder: Path) -> DerivedPack:
    """Derive the manifests of every decorated function of a pack. The code of the pack is imported."""
    derived = derive_decorated(folder)
    if not derived.manifests and not derived.problems:
        derived.problems.append(PackProblem(folder.resolve() / DESCRIPTION, 1, "the pack has no function with @tool"))
    return derived


def derive_decorated(folder: Path) -> DerivedPack:
    """Derive like `derive_pack`. A pack without decorated functions has no problem."""
    folder = folder.resolve()
    description = folder / DESCRIPTION
    try:
        pack = str(json.loads(description.read_text())["name"])
    except json.JSONDecodeError as error:
        return DerivedPack({}, [PackProblem(description, error.lineno, f"is no JSON: {error.msg}")])
    except (OSError, ValueError, KeyError, TypeError):
        return DerivedPack({}, [PackProblem(description, 1, 'is not {"name": "..."}')])
    if pack != folder.name:
        return DerivedPack({}, [PackProblem(description, 1, f"its name is not the folder's: {folder.name}")])
    manifests: dict[str, dict[str, Any]] = {}
    problems: list[PackProblem] = []
    try:
        library = library_of(folder)
    except (WheelError, OSError) as error:
        return DerivedPack({}, [PackProblem(folder / LOCK, 1, str(error))])
    with _importable(folder.parent, pack, library):
        for path in pack_modules(folder):
            problems += _derive_module(path, folder, pack, manifests)
    return DerivedPack(manifests, problems)


def pack_modules(folder: Path) -> Iterator[Path]:
    """Yield the modules that may hold tools."""
    for path in sorted(folder.rglob("*.py")):
        if not _SKIPPED & set(path.relative_to(folder).parts):
            yield path


def _derive_module(path: Path, folder: Path, pack: str, manifests: dict[str, dict[str, Any]]) -> list[PackProblem]:
    try:
        source = ModuleSource(path)
    except (SyntaxError, ValueError) as error:
        return [PackProblem(path, getattr(error, "lineno", None) or 1, f"is no Python: {getattr(error, 'msg', error)}")]
    known = _accept_options(source.option_names())
    name = ".".join((pack, *path.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__")
    try:
        module = importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return [PackProblem(*_place_of(error, path, folder), f"cannot be imported: {type(error).__name__}: {error}")]
    entries = [each for each in vars(module).values() if getattr(each, "tool_function", None) is not None]
    problems: list[PackProblem] = []
    for entry in entries:
        if entry.__module__ == name:
            problems += _derive_function(entry, source, pack, known, manifests)
    return problems


def _derive_function(
    entry: Any, source: ModuleSource, pack: str, known: frozenset[str], manifests: dict[str, dict[str, Any]]
) -> list[PackProblem]:
    from toolmesh_tool import Call  # type: ignore[import-not-found]

    function = entry.__name__
    problems = [
        PackProblem(source.path, source.line_of_option(function, option), f"tool() has no option {option}")
        for option in sorted(entry.tool_options.keys() - known)
    ]
    declared = entry.tool_options.get("secrets") or ()
    for secret, line in source.secrets_asked(function):
        if secret not in declared:
            advice = f'write secrets={{"{secret}": "secret://{secret}"}}'
            message = f"asks for the secret {secret}, which @tool does not declare; {advice}"
            problems.append(PackProblem(source.path, line, message))
    try:
        manifest = derive_manifest(entry, pack, Call)
    except UnderivableError as error:
        line = source.line_of_part(function, error.place)
        if error.place in entry.tool_options:
            line = source.line_of_option(function, error.place)
        return [*problems, PackProblem(source.path, line, f"{error.place}: {error.message}")]
    if manifest["tool_id"] in manifests:
        message = f"a second tool has the name {manifest['tool_id']}"
        problems.append(PackProblem(source.path, source.line_of(function), message))
    manifests[manifest["tool_id"]] = manifest
    for found in check_manifest(manifest):
        if found.blocks:
            message = f"{found.path}: {found.message} [{found.rule}] {found.advice.text}".strip()
            problems.append(PackProblem(source.path, source.line_of_field(function, found.path), message))
    return problems


def _accept_options(names: set[str]) -> frozenset[str]:
    """Let the decorator accept these options, so that an unknown one hides no other problem. Return the known ones."""
    from toolmesh_tool import decorator

    if not hasattr(decorator, "known"):
        decorator.known = decorator.OPTIONS
    decorator.OPTIONS = decorator.OPTIONS | names
    known: frozenset[str] = decorator.known
    return known


def _place_of(error: BaseException, path: Path, folder: Path) -> tuple[Path, int]:
    """Return the innermost line of the pack that a failed import went through."""
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).is_relative_to(folder):
        return Path(error.filename), error.lineno or 1
    frames = traceback.extract_tb(error.__traceback__)
    lines = [(Path(frame.filename), frame.lineno or 1) for frame in frames]
    inside = [line for line in lines if line[0].is_relative_to(folder)]
    return inside[-1] if inside else (path, 1)


@contextmanager
def _importable(parent: Path, pack: str, library: Path | None) -> Iterator[None]:
    """Make the pack and `toolmesh_tool` importable, as they are inside a sandbox."""
    before, known, writes_none = list(sys.path), set(sys.modules), sys.dont_write_bytecode
    installed = [] if library is None else [str(library)]
    sys.path[:0] = [str(parent), str(_WORKER), *_packages(parent / pack), *installed]
    # Bytecode is compared by the second and the size of its source: a quick second save could be taken for the first.
    sys.dont_write_bytecode = True
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path[:], sys.dont_write_bytecode = before, writes_none
        for name in set(sys.modules) - known:
            if name.partition(".")[0] in (pack, "toolmesh_tool") or _is_below(sys.modules[name], library):
                del sys.modules[name]


def _is_below(module: Any, library: Path | None) -> bool:
    file = getattr(module, "__file__", None)
    return library is not None and isinstance(file, str) and Path(file).is_relative_to(library)


def _packages(folder: Path) -> list[str]:
    """Return the folder of a pack's third-party packages, if it has one."""
    lib = json.loads((folder / DESCRIPTION).read_text()).get("lib", "")
    return [str(folder / lib)] if isinstance(lib, str) and lib else []
