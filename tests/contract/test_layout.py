"""The six services have the same layout, every module has its tests, and documents name only what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.contract.import_graph import ROOMS as MODULE_FOLDERS
from tests.contract.import_graph import ImportGraph

SERVICES = ["registry", "authz", "executor", "approval", "audit", "gateway"]
FILES = ["README.md", "__init__.py", "__main__.py", "config.py", "wiring.py", "policy.py"]
# One file, or a folder with a file for each gRPC service of the process.
ROOMS = ["handlers", "convert"]
DOMAIN = ["__init__.py", "model.py", "ports.py", "errors.py"]
FOLDERS = ["domain", "adapters", "tests"]
# The gateway keeps no state, so it has nothing to migrate.
STATEFUL = [name for name in SERVICES if name != "gateway"]


def test_the_services_are_the_six(repository: Path) -> None:
    found = {p.name for p in (repository / "services").iterdir() if p.is_dir() and not p.name.startswith("__")}
    assert found == set(SERVICES)


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_has_the_common_shape(repository: Path, service: str) -> None:
    room = repository / "services" / service
    assert [name for name in FILES if not (room / name).is_file()] == []
    assert [
        name for name in ROOMS if not ((room / f"{name}.py").is_file() or (room / name / "__init__.py").is_file())
    ] == []
    assert [name for name in FOLDERS if not (room / name).is_dir()] == []
    assert [name for name in DOMAIN if not (room / "domain" / name).is_file()] == []


@pytest.mark.parametrize("service", STATEFUL)
def test_a_service_with_state_has_migrations(repository: Path, service: str) -> None:
    room = repository / "services" / service / "migrations"
    assert [name for name in ("__init__.py", "__main__.py", "env.py") if not (room / name).is_file()] == []
    assert list((room / "versions").glob("0001_*.py")) != []


@pytest.mark.parametrize("service", SERVICES)
def test_a_readme_stays_short_and_answers_the_five_questions(repository: Path, service: str) -> None:
    lines = (repository / "services" / service / "README.md").read_text().splitlines()
    assert len(lines) <= 70
    text = "\n".join(lines).lower()
    assert [word for word in ("owns", "rpc", "state", "## environment", "## how it fails") if word not in text] == []


def modules_without_own_test(repository: Path) -> dict[str, str]:
    """Return the modules without a test module of their own, each with the test module that exercises it."""
    lines = (repository / "tests" / "contract" / "tested_through.txt").read_text().splitlines()
    return dict(line.split(": ", 1) for line in lines)


@pytest.fixture
def graph(repository: Path) -> ImportGraph:
    return ImportGraph(repository)


def own_test_module(module: str) -> str:
    room, base = next((room, base) for room, base in MODULE_FOLDERS.items() if module.startswith(f"{base}/"))
    path = Path(module).relative_to(base)
    return str(Path(room) / "tests" / path.parent / f"test_{path.name}")


def modules_with_logic(graph: ImportGraph) -> set[str]:
    folders = tuple(f"{base}/" for base in MODULE_FOLDERS.values())
    modules = {file for file in graph.files if file.startswith(folders) and "tests" not in Path(file).parts}
    named = {m for m in modules if Path(m).stem not in ("__init__", "__main__") and "migrations" not in Path(m).parts}
    return {module for module in named if graph.has_logic(module)}


def test_every_module_with_logic_has_a_test_module(repository: Path, graph: ImportGraph) -> None:
    """A module is tested by the module of its name, or by the one that `tested_through.txt` names."""
    without = {module for module in modules_with_logic(graph) if own_test_module(module) not in graph.files}
    assert without == modules_without_own_test(repository).keys()


def test_the_named_test_modules_can_exercise_their_modules(repository: Path, graph: ImportGraph) -> None:
    """The test module imports the module, directly or not, or starts it as a process."""
    astray = []
    for module, test in modules_without_own_test(repository).items():
        test, _, how = test.partition(", ")
        reached = test in graph.files and (how == "as a process" or module in graph.distances(test))
        astray += [] if reached else [module]
    assert astray == []


DOCUMENTS = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "docs/SECURITY.md",
    "docs/concepts.md",
    "docs/operations.md",
    "docs/audit.md",
    "docs/discovery.md",
    "docs/lifecycle.md",
    "docs/compatibility.md",
    "docs/redaction.md",
    "docs/usage.md",
    "docs/benchmarks.md",
]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_documents_name_only_what_exists(repository: Path, document: str) -> None:
    """Every path in backticks or behind a link leads somewhere; messages are named below proto/toolmesh."""
    text = (repository / document).read_text()
    rooms = "proto|gen|libs|services|localmesh|authoring|sdk|deploy|tests|bench|docs"
    rooms += "|common|registry|authz|executor|approval|audit"
    named = set(re.findall(rf"`((?:{rooms})/[\w./-]+)`", text)) | set(re.findall(r"\]\(([\w./-]+)\)", text))
    # A link is relative to the document that it is in.
    places = (repository, repository / "proto" / "toolmesh", (repository / document).parent)
    assert sorted(name for name in named if not any((place / name).exists() for place in places)) == []
