"""The modules of the domain import each other without cycles. Imports for type checking count."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

from services.executor import domain

ROOT = Path(domain.__file__).parent
PACKAGE = domain.__name__


def imported_modules(path: Path) -> set[str]:
    """Return the names of the domain modules that a file imports, wherever the import stands."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.update({node.module, *(f"{node.module}.{alias.name}" for alias in node.names)})
    return {name for name in names if name.startswith(f"{PACKAGE}.")}


def module_imports() -> dict[str, set[str]]:
    """Return the modules of the domain, and what each imports of the others."""
    files = {
        ".".join([PACKAGE, *path.relative_to(ROOT).with_suffix("").parts]): path
        for path in ROOT.rglob("*.py")
        if path.name != "__init__.py"
    }
    return {name: imported_modules(path) & files.keys() for name, path in files.items()}


def test_no_module_of_the_domain_imports_itself_through_others() -> None:
    graph = module_imports()
    assert len(graph) > 40
    # Raises CycleError, which names the modules of a cycle.
    assert len(list(TopologicalSorter(graph).static_order())) == len(graph)


def test_no_package_of_the_domain_imports_itself_through_others() -> None:
    """The nouns at the root are shared by all packages and name some of their types, so the root is left out."""
    graph: dict[str, set[str]] = {}
    for module, imports in module_imports().items():
        package = module.rpartition(".")[0]
        graph.setdefault(package, set()).update(name.rpartition(".")[0] for name in imports)
    packages = {name: imports - {name, PACKAGE} for name, imports in graph.items() if name != PACKAGE}
    assert len(packages) > 12
    assert len(list(TopologicalSorter(packages).static_order())) == len(packages)
