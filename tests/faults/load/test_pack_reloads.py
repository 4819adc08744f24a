"""Fifty versions of a pack under load: no call fails, each runs one version, and no worker of old code stays."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from authoring.packs.install_pack import install_pack
from services.executor.tests.packing import make_pack
from tests.harness.mesh import Mesh, cli, running_mesh
from tests.harness.stores import wait_until

pytestmark = pytest.mark.faults

RELOADS, CALLERS = 50, 4
MANIFEST = """{"namespace": "reloads", "tool_id": "which", "description": "Says which version of its code it is.",
 "mutation_class": "read_only", "execution": {"entry_point": "reloads/which:which"},
 "interface": {"safety": {"sandbox_tier": "process"}}}"""
# The second module is imported only after a while, when the pack may have changed.
CODE = """
import time
NUMBER = {number}
def which(arguments, call):
    time.sleep(0.05)
    from reloads import late
    return {{"numbers": [NUMBER, late.NUMBER]}}
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that users of sandboxes can pass, for everything temporary of the mesh."""
    path = Path(tempfile.mkdtemp(prefix="reloads-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@dataclass
class Callers:
    """Calls again and again, and keeps every answer."""

    mesh: Mesh
    numbers: list[list[int]] = field(default_factory=list)
    failures: list[Any] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def call(self) -> None:
        token = self.mesh.token()
        while not self.stopped.is_set():
            answer = self.mesh.rpc("tools.invoke", {"tool": "reloads.which", "arguments": {}}, token=token).json()
            if "result" in answer:
                self.numbers.append(answer["result"]["structured_content"]["numbers"])
            else:
                self.failures.append(answer)

    def newest(self) -> int:
        return max((numbers[0] for numbers in self.numbers[-CALLERS:]), default=-1)


def install(folder: Path, packs: Path, number: int) -> None:
    source = make_pack(
        folder / f"source-{number}",
        "reloads",
        {"which.py": CODE.format(number=number), "late.py": f"NUMBER = {number}\n"},
    )
    install_pack(source, packs)


def mounted_copies() -> set[str]:
    """The copies that workers of this machine have mounted as this pack."""
    copies = set()
    for mounts in Path("/proc").glob("[0-9]*/mountinfo"):
        with suppress(OSError):
            fields = [line.split() for line in mounts.read_text().splitlines()]
            copies |= {"/".join(each[3].split("/")[-2:]) for each in fields if each[4] == "/packs/reloads"}
    return copies


def test_no_call_fails_amid_fifty_reloads(folder: Path) -> None:
    packs = folder / "packs"
    install(folder, packs, 0)
    (folder / "which.json").write_text(MANIFEST)
    with running_mesh(folder / "state", TOOLMESH_TOOL_PACKS=str(packs), TMPDIR=str(folder)) as mesh:
        cli("tools", "register", str(folder / "which.json"), state=mesh.state)
        callers = Callers(mesh)
        threads = [threading.Thread(target=callers.call) for _ in range(CALLERS)]
        for thread in threads:
            thread.start()
        try:
            for number in range(RELOADS + 1):
                if number:
                    install(folder, packs, number)
                wait_until(lambda number=number: callers.newest() >= number, f"version {number}", 120)  # type: ignore[misc]
        finally:
            callers.stopped.set()
            for thread in threads:
                thread.join()
        assert callers.failures == []
        assert all(first == second for first, second in callers.numbers)
        assert {first for first, _ in callers.numbers} == set(range(RELOADS + 1))
        # One copy is left, and every worker runs it.
        [copies] = folder.glob("toolmesh-runners-*/packs")
        wait_until(lambda: len(list(copies.iterdir())) == 1, "the copies of old code to go", 60)
        [current] = copies.iterdir()
        assert mounted_copies() == {f"packs/{current.name}"}
