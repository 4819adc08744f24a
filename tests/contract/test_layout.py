"""The six services have the same inner shape, so that whoever knows one knows where to look in all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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
    assert (room / "env.py").is_file()
    assert list((room / "versions").glob("0001_*.py")) != []


@pytest.mark.parametrize("service", SERVICES)
def test_a_readme_stays_short_and_answers_the_five_questions(repository: Path, service: str) -> None:
    lines = (repository / "services" / service / "README.md").read_text().splitlines()
    assert len(lines) <= 60
    text = "\n".join(lines).lower()
    assert [word for word in ("owns", "rpc", "state", "## environment", "## how it fails") if word not in text] == []


@pytest.mark.parametrize("service", SERVICES)
def test_every_module_with_logic_has_a_test_module(repository: Path, service: str) -> None:
    room = repository / "services" / service
    assert sorted((room / "tests").glob("test_*.py")) != []


DOCUMENTS = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
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
    rooms = (
        "proto|gen|libs|services|localmesh|sdk|deploy|tests|bench|docs|common|registry|authz|executor|approval|audit"
    )
    named = set(re.findall(rf"`((?:{rooms})/[\w./-]+)`", text)) | set(re.findall(r"\]\(([\w./-]+)\)", text))
    # A link is relative to the document that it is in.
    places = (repository, repository / "proto" / "toolmesh", (repository / document).parent)
    assert sorted(name for name in named if not any((place / name).exists() for place in places)) == []


def test_the_tree_is_named_nowhere_by_its_builders_tools(repository: Path) -> None:
    """Nothing in the tree may depend on where or with what it was built."""
    forbidden = ["/wor" + "k/", ".." + "/shared", "far" + "m-studio"]
    hits = []
    for path in repository.rglob("*"):
        parts = path.relative_to(repository).parts
        if not path.is_file() or parts[0] in (".git", ".venv", ".cache", ".toolmesh") or "__pycache__" in parts:
            continue
        if any(part.endswith("_cache") or part == ".hypothesis" for part in parts):
            continue
        content = path.read_bytes()
        hits += [str(path) for word in forbidden if word.encode() in content]
    assert hits == []
