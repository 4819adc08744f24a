"""The build before the newest migrations goes on while they run under it: no call fails, and it reads and writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from toolmesh_sdk import Client, ToolmeshError

from localmesh.parts.schemas import DATABASE
from localmesh.state.secrets import DATABASE_ROLES, SCHEMA_OWNERS
from tests.harness.stores import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[3]
# The last commit that was pushed before revisions 0011 and 0012 of the registry. A release puts its predecessor here.
BEFORE = "cf43c192"
CALLS = 200


@dataclass(frozen=True)
class MeshBefore:
    """A running mesh of the build before, driven by its own command line."""

    tree: Path
    state: Path

    def run(self, *arguments: str) -> str:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TOOLMESH_")}
        environment["TOOLMESH_STATE"] = str(self.state)
        program = str(self.tree / ".venv" / "bin" / "toolmesh")
        done = subprocess.run(
            [program, *arguments], cwd=self.tree, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def url_of(self, role: str, scheme: str = "postgresql") -> str:
        password = (self.state / "secrets" / "database" / role).read_text().strip()
        port = json.loads((self.state / "ports.json").read_text())["postgres"]
        return f"{scheme}://{role}:{quote(password)}@127.0.0.1:{port}/{DATABASE}"

    def revisions(self) -> dict[str, str]:
        with psycopg.connect(self.url_of("postgres")) as connection:
            query = "select version_num from {}.schema_version"
            found = {role: connection.execute(query.format(role).encode()).fetchone() for role in DATABASE_ROLES}
        return {role: str(row[0]) for role, row in found.items() if row}


@pytest.fixture
def before(tmp_path: Path) -> Iterator[MeshBefore]:
    tree = tmp_path / "before"
    if subprocess.run(["git", "cat-file", "-e", BEFORE], cwd=ROOT, capture_output=True, check=False).returncode:
        pytest.skip(f"commit {BEFORE} is not in this clone: fetch its whole history")
    subprocess.run(["git", "clone", "--quiet", "--no-checkout", str(ROOT), str(tree)], check=True)
    subprocess.run(["git", "checkout", "--quiet", BEFORE], cwd=tree, check=True)
    subprocess.run(["make", "setup"], cwd=tree, check=True)
    mesh = MeshBefore(tree, tmp_path / "state")
    mesh.run("up", "--detach")
    try:
        yield mesh
    finally:
        mesh.run("down")


@dataclass
class Calls:
    """What became of the calls so far."""

    answered: int = 0
    failed: list[str] = field(default_factory=list)


@contextmanager
def steady_calls(mesh: MeshBefore) -> Iterator[Calls]:
    """Calls a tool, one call after the other, while the block runs."""
    runtime = json.loads((mesh.state / "runtime.json").read_text())
    calls, ending = Calls(), threading.Event()

    def call() -> None:
        with Client(runtime["gateway"]["url"].removesuffix("/rpc"), token=(mesh.state / "token").read_text()) as client:
            while not ending.is_set():
                try:
                    client.call("echo", {"text": "hello"}, timeout=60)
                    calls.answered += 1
                except ToolmeshError as error:
                    calls.failed.append(str(error))

    caller = threading.Thread(target=call)
    caller.start()
    try:
        yield calls
    finally:
        ending.set()
        caller.join()


def more(calls: Calls) -> None:
    """Waits for further answers."""
    seen = calls.answered
    wait_until(lambda: calls.answered >= seen + CALLS or bool(calls.failed), f"{CALLS} further calls", 600)


def test_the_build_before_goes_on_under_the_newest_migrations(before: MeshBefore) -> None:
    owners = {role: before.url_of(SCHEMA_OWNERS.get(role, role)) for role in DATABASE_ROLES}
    old = before.revisions()
    with steady_calls(before) as calls:
        more(calls)
        migrated = subprocess.run(
            [sys.executable, "-m", "localmesh.migrate"],
            input=json.dumps(owners),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        assert json.loads(migrated.stdout) == {}
        new = before.revisions()
        assert new != old
        assert all(new[role] >= old[role] for role in DATABASE_ROLES)
        more(calls)
        before.run("tools", "register", "examples/packs/textkit/manifests")
        assert "word_statistics" in before.run("tools", "search", "count words")
        more(calls)
    assert calls.failed == []
    before.run("audit", "verify")
