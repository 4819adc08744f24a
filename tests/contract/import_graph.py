"""Reads the tree's own imports, to find which test modules can exercise a module."""

from __future__ import annotations

import ast
from collections import deque
from functools import cache
from pathlib import Path

_BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.comprehension, ast.BoolOp, ast.IfExp, ast.Match)
_ENOUGH_BRANCHES = 3
ROOMS = {
    **{
        f"services/{name}": f"services/{name}"
        for name in ("registry", "authz", "executor", "approval", "audit", "gateway")
    },
    "libs/common": "libs/common",
    "libs/audit_client": "libs/audit_client",
    "libs/authz_client": "libs/authz_client",
    "localmesh": "localmesh",
    "authoring": "authoring",
    "sdk": "sdk/toolmesh_sdk",
}
"""The folder that holds a room's tests, and the folder of its modules."""


class ImportGraph:
    """The imports between the Python files of a repository."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.files = {str(path.relative_to(root)) for path in _python_files(root)}
        self._modules = {_module_name(file): file for file in self.files}

    @cache  # noqa: B019  (lives as long as one test session)
    def imports(self, file: str) -> frozenset[str]:
        """Return the files that a file imports."""
        found = set()
        for node in ast.walk(ast.parse((self._root / file).read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                # A module that is imported by its name when it is needed.
                names = [node.value]
            else:
                continue
            found |= {self._modules[name] for name in names if name in self._modules}
        return frozenset(found)

    def distances(self, file: str) -> dict[str, int]:
        """Return how many imports lead from a file to every file that it can reach."""
        distance, waiting = {file: 0}, deque([file])
        while waiting:
            current = waiting.popleft()
            for imported in self.imports(current) - distance.keys():
                distance[imported] = distance[current] + 1
                waiting.append(imported)
        return distance

    def has_logic(self, file: str) -> bool:
        """Return whether a module has more than declarations in it."""
        tree = ast.parse((self._root / file).read_text())
        return sum(isinstance(node, _BRANCHES) for node in ast.walk(tree)) >= _ENOUGH_BRANCHES


def _python_files(root: Path) -> list[Path]:
    folders = ("services", "libs", "localmesh", "authoring", "sdk", "tests")
    return [path for folder in folders for path in (root / folder).rglob("*.py") if "packs" not in path.parts]


def _module_name(file: str) -> str:
    name = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return name.removeprefix("sdk.") if name.startswith("sdk.toolmesh_sdk") else name
