"""The modules of a domain import each other without cycles. Imports for type checking count."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SERVICES = ["registry", "authz", "executor", "approval", "audit", "gateway"]
# The domains whose packages are layered as well.
LAYERED = ["authz", "executor", "approval"]


def imported_modules(path: Path, package: str) -> set[str]:
    """Return the names of the domain modules that a file imports, wherever the import stands."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.update({node.module, *(f"{node.module}.{alias.name}" for alias in node.names)})
    return {name for name in names if name.startswith(f"{package}.")}


def module_imports(repository: Path, service: str) -> dict[str, set[str]]:
    """Return the modules of a domain, and what each imports of the others."""
    root, package = repository / "services" / service / "domain", f"services.{service}.domain"
    files = {
        ".".join([package, *path.relative_to(root).with_suffix("").parts]): path
        for path in root.rglob("*.py")
        if path.name != "__init__.py"
    }
    return {name: imported_modules(path, package) & files.keys() for name, path in files.items()}


@pytest.mark.parametrize("service", SERVICES)
def test_no_module_of_a_domain_imports_itself_through_others(repository: Path, service: str) -> None:
    graph = module_imports(repository, service)
    assert any(graph.values())
    # Raises CycleError, which names the modules of a cycle.
    assert len(list(TopologicalSorter(graph).static_order())) == len(graph)


@pytest.mark.parametrize("service", LAYERED)
def test_no_package_of_a_domain_imports_itself_through_others(repository: Path, service: str) -> None:
    """The nouns at the root are shared by all packages and may name some of their types, so the root is left out."""
    top = f"services.{service}.domain"
    graph: dict[str, set[str]] = {}
    for module, imports in module_imports(repository, service).items():
        package = module.rpartition(".")[0]
        graph.setdefault(package, set()).update(name.rpartition(".")[0] for name in imports)
    packages = {name: imports - {name, top} for name, imports in graph.items() if name != top}
    assert any(packages.values())
    assert len(list(TopologicalSorter(packages).static_order())) == len(packages)
