"""Finds which locked packages a program imports, from its source: an image holds those and no others."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import files, packages_distributions
from pathlib import Path

# Folders that are import roots of the tree.
IMPORT_ROOTS = ("", "gen", "sdk")
# Packages that another one loads by name: SQLAlchemy its driver, uvicorn its parser.
LOADED_BY = {"psycopg": "sqlalchemy", "httptools": "uvicorn"}
_NAME = re.compile(r"^[A-Za-z0-9._-]+")


def requirements_of(root: Path, entries: Iterable[str]) -> tuple[str, ...]:
    """Return the dependencies of pyproject.toml that the modules import, directly or through modules of the tree."""
    distributions = packages_distributions()
    wanted = {normalize(name) for module in imported_modules(root, entries) for name in _owners(distributions, module)}
    wanted |= {loaded for loaded, loader in LOADED_BY.items() if loader in wanted}
    return tuple(each for each in _dependencies(root) if requirement_name(each) in wanted)


def imported_modules(root: Path, entries: Iterable[str]) -> frozenset[str]:
    """Return the dotted names of all modules outside the tree that the entries import, however deep."""
    waiting, seen, outside = deque(entries), set[str](), set[str]()
    while waiting:
        module = waiting.popleft()
        if module in seen:
            continue
        seen.add(module)
        if (file := _source(root, module)) is None:
            outside.add(module)
            continue
        waiting.extend(_imports(file))
        if parent := module.rpartition(".")[0]:
            waiting.append(parent)
    return frozenset(outside)


def modules_below(root: Path, folder: str) -> Iterator[str]:
    """Yield the modules of a folder or one file, tests left out: some are started by name and imported by none."""
    place = root / folder
    for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if "tests" not in parts:
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def normalize(name: str) -> str:
    """Return a distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirement_name(requirement: str) -> str:
    """Return the normalized name of a requirement such as `psycopg[binary]>=3.3`."""
    found = _NAME.match(requirement)
    if found is None:
        raise ValueError(f"{requirement!r} is not a requirement")
    return normalize(found[0])


def _dependencies(root: Path) -> list[str]:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *project["optional-dependencies"].get("cluster", ())]


def _owners(distributions: Mapping[str, list[str]], module: str) -> list[str]:
    found = distributions.get(module.partition(".")[0], [])
    # Several distributions share a namespace such as `google`; their files say which one has the module.
    return found if len(set(found)) < 2 else [name for name in found if module in _modules(name)]


@cache
def _modules(distribution: str) -> frozenset[str]:
    paths = (Path(str(file)) for file in files(distribution) or () if str(file).endswith(".py"))
    return frozenset(".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths)


def _source(root: Path, module: str) -> Path | None:
    path = module.replace(".", "/")
    for base in IMPORT_ROOTS:
        for file in (root / base / f"{path}.py", root / base / path / "__init__.py"):
            if file.is_file():
                return file
    return None


def _imports(file: Path) -> Iterator[str]:
    """Yield the names that a file imports at run time, those inside functions too."""
    waiting: deque[ast.AST] = deque([ast.parse(file.read_text())])
    while waiting:
        node = waiting.popleft()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            waiting.extend(node.orelse)
        else:
            waiting.extend(ast.iter_child_nodes(node))
