"""The checks that a machine makes better than a reviewer: format, lint, types, imports, the contract and what it
yields.

Each check also proves that it can fail, on a copy of the tree with one planted fault.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
COPIED = [
    "proto",
    "gen",
    "docs",
    "tools",
    "libs",
    "services",
    "localmesh",
    "authoring",
    "sdk",
    "buf.yaml",
    "pyproject.toml",
]


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    program = str(BIN / command[0])
    return subprocess.run([program, *command[1:]], cwd=cwd, capture_output=True, text=True, check=False)


def passes(*command: str, cwd: Path) -> None:
    done = run(*command, cwd=cwd)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]


@pytest.fixture
def copy(repository: Path, tmp_path: Path) -> Path:
    ignore = shutil.ignore_patterns("__pycache__", "*_cache")
    for name in COPIED:
        source = repository / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=ignore)
        else:
            shutil.copy(source, tmp_path / name)
    shutil.copytree(repository / ".cache" / "protodeps", tmp_path / ".cache" / "protodeps")
    return tmp_path


def test_every_test_can_be_collected(repository: Path) -> None:
    """It also compiles the test files, which then load fast in every worker."""
    passes("pytest", "--collect-only", "-q", "-q", cwd=repository)


def test_the_code_is_formatted(repository: Path) -> None:
    passes("ruff", "format", "--check", ".", cwd=repository)


def test_the_code_has_no_lint(repository: Path) -> None:
    passes("ruff", "check", ".", cwd=repository)


def test_the_types_hold(repository: Path) -> None:
    passes("mypy", cwd=repository)


def test_the_rooms_import_only_whom_they_may(repository: Path) -> None:
    passes("lint-imports", "--no-cache", cwd=repository)


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("services/registry/domain/model.py", "import services.audit.convert"),
        ("services/registry/convert/registry.py", "import services.audit.convert"),
        ("services/audit/domain/model.py", "import grpc"),
        ("services/audit/handlers/audit.py", "import services.audit.adapters"),
        ("libs/common/ids.py", "import services.audit.policy"),
        ("libs/common/ids.py", "import toolmesh.audit.v1.audit_service_pb2"),
        ("libs/common/auth/identity.py", "import libs.common.auth.revocations"),
        ("sdk/toolmesh_sdk/__init__.py", "import libs.common.ids"),
    ],
)
def test_a_planted_import_across_rooms_is_found(copy: Path, place: str, line: str) -> None:
    target = copy / place
    target.write_text(target.read_text() + f"\n{line}\n")
    command = [sys.executable, "-c", _LINT_COPY]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "BROKEN" in done.stdout


# The installed tree must not shadow the copy, so the copy's roots come first.
_LINT_COPY = """
import sys
sys.path[:0] = [".", "sdk", "gen"]
sys.meta_path[:] = [f for f in sys.meta_path if "__editable__" not in getattr(f, "__name__", type(f).__module__)]
from importlinter.cli import lint_imports
sys.exit(lint_imports(no_cache=True))
"""


def test_the_contract_is_well_formed(repository: Path) -> None:
    passes("buf", "lint", cwd=repository)
    passes("buf", "format", "--diff", "--exit-code", "proto", cwd=repository)


def test_a_planted_fault_in_the_contract_is_found(copy: Path) -> None:
    target = copy / "proto" / "toolmesh" / "common" / "v1" / "caller.proto"
    target.write_text(target.read_text().replace("  // The id of the token that it held.\n", ""))
    assert run("buf", "lint", cwd=copy).returncode != 0


def test_the_contract_is_backward_compatible(repository: Path, tmp_path: Path) -> None:
    """Compare with the main branch: callers built against it must keep working."""
    landed = landed_contract(repository, tmp_path)
    if landed is None:
        pytest.skip("this tree has no history, so there is no earlier contract to compare with")
    passes("buf", "breaking", "--against", str(landed), cwd=repository)


def test_a_planted_breaking_change_is_found(repository: Path, copy: Path) -> None:
    target = copy / "proto" / "toolmesh" / "executor" / "v1" / "executor_service.proto"
    target.write_text(target.read_text().replace("string idempotency_key = 4", "string idempotency_key = 14"))
    assert run("buf", "breaking", "--against", str(repository), cwd=copy).returncode != 0


def test_generated_files_are_what_the_contract_yields(repository: Path) -> None:
    passes("python", "tools/generate.py", "--check", cwd=repository)


@pytest.mark.parametrize(
    ("place", "old", "new"),
    [
        ("proto/toolmesh/common/v1/error_reason.proto", "Wait and retry.", "Wait, then retry."),
        ("libs/common/runtime/settings.py", "Lowest level that is logged.", "Lowest logged level."),
    ],
)
def test_stale_generated_files_are_found(copy: Path, place: str, old: str, new: str) -> None:
    target = copy / place
    target.write_text(target.read_text().replace(old, new))
    checked = run("python", "tools/generate.py", "--check", cwd=copy)
    assert checked.returncode == 1
    assert "stale" in checked.stdout


def _commit(repository: Path, reference: str) -> str:
    command = ["git", "rev-parse", "--verify", "--quiet", f"{reference}^{{commit}}"]
    return subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False).stdout.strip()


def landed_contract(repository: Path, scratch: Path) -> Path | None:
    """Check out the contract of main, or None where there is none, as in a tree without history. What is main itself
    is held
    against the commit before: compared with itself it would never break."""
    head = _commit(repository, "HEAD")
    for main in ("origin/main", "main"):
        reference = f"{main}~1" if _commit(repository, main) == head else main
        archive = subprocess.run(
            ["git", "archive", reference, "proto", "buf.yaml"], cwd=repository, capture_output=True, check=False
        )
        if archive.returncode == 0:
            landed = scratch / "landed"
            landed.mkdir()
            subprocess.run(["tar", "-x", "-C", str(landed)], input=archive.stdout, check=True)
            shutil.copytree(repository / ".cache" / "protodeps", landed / ".cache" / "protodeps")
            return landed
    return None
