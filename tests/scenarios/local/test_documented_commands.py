"""The commands of the documentation work as they are written, on a mesh whose usual ports are taken."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import typer
from toolmesh_sdk.cli.main import build

from localmesh.ports import USUAL_PORTS
from tests.harness.clients.documents import DOCUMENTS, ROOT, SHELL, Block, blocks, inline_commands
from tests.harness.mesh import Mesh, cli, running_mesh
from tests.harness.stores import wait_until

pytestmark = pytest.mark.docs

BLOCKS = [block for document in DOCUMENTS for block in blocks(document)]
RUN = SHELL | {"python"}
# Run by the test of the backup, which looks at the mesh before and after.
BACKUP = ROOT / "docs" / "operations.md"
LONGEST_SECONDS = 600


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """A mesh of its own home, beside something else on each of its usual ports."""
    with ExitStack() as stack:
        for port in USUAL_PORTS.values():
            taken = stack.enter_context(socket.socket())
            try:
                taken.bind(("127.0.0.1", port))
                taken.listen()
            except OSError:
                continue  # another process has it: taken all the same
        state = tmp_path_factory.mktemp("documented") / "state"
        yield stack.enter_context(running_mesh(state, "--scale", "executor=2"))


@pytest.fixture(scope="module")
def folder(mesh: Mesh, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout as a reader has it, in which commands may write."""
    place = tmp_path_factory.mktemp("checkout")
    for name in ("examples", "services"):
        (place / name).symlink_to(ROOT / name)
    (place / ".venv").mkdir()
    (place / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    return place


def run(block: Block, mesh: Mesh, folder: Path) -> None:
    """Run a block in one shell, command by command; each must end as the text says."""
    if block.language == "python":
        (folder / "block.py").write_text("\n".join(block.lines))
        commands = [(f"{sys.executable} block.py", False)]
    else:
        commands = [(command.text, command.refused) for command in block.commands()]
    script = ['eval "$(toolmesh env)" || exit 90']
    for number, (text, refused) in enumerate(commands):
        script += [
            text,
            f"code=$?; [ $code {'-ne' if refused else '-eq'} 0 ] || {{ echo failed {number} $code; exit 91; }}",
        ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOOLMESH_")}
    environment |= {
        "TOOLMESH_STATE": str(mesh.state),
        "HOME": str(folder),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash"],
        input="\n".join(script),
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LONGEST_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{block.place}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


def test_the_usual_ports_were_taken(mesh: Mesh) -> None:
    assert mesh.runtime["ports"]["edge"] != USUAL_PORTS["edge"]
    assert not set(mesh.runtime["ports"].values()) & set(USUAL_PORTS.values())


def test_both_executors_of_a_scaled_mesh_serve_the_edge_and_the_gateway(mesh: Mesh) -> None:
    token = mesh.token()
    for _ in range(8):
        assert mesh.rpc("tools.invoke", {"tool": "clock_now"}, token=token).status_code == 200

    def both_served() -> bool:
        return all(any(line.get("event") == "call" for line in mesh.logs(part)) for part in ("executor", "executor-2"))

    wait_until(both_served, "calls in the logs of both executors", 60)


@pytest.mark.parametrize("block", BLOCKS, ids=[block.place for block in BLOCKS])
def test_every_block_says_what_it_is(block: Block) -> None:
    assert block.language, "a fenced block needs a language"
    assert not block.not_run or block.language in RUN


# The README comes first, as for its reader.
@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, id=block.place)
        for block in sorted(BLOCKS, key=lambda each: each.document.name != "README.md")
        if block.language in RUN and not block.not_run and block.document != BACKUP
    ],
)
def test_every_block_runs(block: Block, mesh: Mesh, folder: Path) -> None:
    run(block, mesh, folder)


def test_a_restored_mesh_has_its_tokens_keys_stored_effects_and_log(mesh: Mesh, folder: Path) -> None:
    token, key = mesh.token(), {"tool": "clock_now", "idempotency_key": "before-the-backup"}
    first = mesh.rpc("tools.invoke", key, token=token).json()["result"]
    records = _records(mesh)
    reports = mesh.state / "volumes" / "reports"
    files = {path.relative_to(reports): path.read_bytes() for path in reports.rglob("*") if path.is_file()}
    (block,) = (each for each in BLOCKS if each.document == BACKUP and each.language in SHELL and not each.not_run)
    run(block, mesh, folder)
    mesh.runtime = json.loads(cli("status", "--json", state=mesh.state).stdout)
    again = mesh.rpc("tools.invoke", key, token=token).json()["result"]
    assert (again["replayed"], again["structured_content"]) == (True, first["structured_content"])
    assert _records(mesh)[: len(records)] == records
    assert files
    assert {path.relative_to(reports): path.read_bytes() for path in reports.rglob("*") if path.is_file()} == files
    assert (folder / "mesh.tar.gz").stat().st_mode & 0o077 == 0


def test_a_backup_that_was_cut_or_changed_restores_nothing(mesh: Mesh, folder: Path, tmp_path: Path) -> None:
    whole = (folder / "mesh.tar.gz").read_bytes()
    for number, content in enumerate((whole[: len(whole) // 2], b"no archive", whole[:-200] + bytes(200))):
        (tmp_path / f"{number}.tar.gz").write_bytes(content)
        done = cli("restore", str(tmp_path / f"{number}.tar.gz"), state=tmp_path / "state", check=False)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert not (tmp_path / "state").exists()
    assert cli("restore", str(folder / "mesh.tar.gz"), state=mesh.state, check=False).returncode == 3


def _records(mesh: Mesh) -> list[Any]:
    found = json.loads(cli("audit", "tail", "-n", "1000", "--json", state=mesh.state).stdout)["records"]
    return sorted(found, key=lambda record: int(record["sequence"]))


INLINE = sorted({text for document in DOCUMENTS for text in inline_commands(document)})


@pytest.mark.parametrize("text", INLINE)
def test_every_command_in_a_sentence_exists_with_its_options(text: str) -> None:
    command: Any = typer.main.get_command(build())
    words = text.split()[1:]
    while words and hasattr(command, "commands"):
        # `a|b` and `a\|b` stand for either.
        names = words[0].replace("\\|", "|").split("|")
        if not all(name in command.commands for name in names):
            break
        command = command.commands[names[0]]
        words = words[1:]
    assert not hasattr(command, "commands") or not words or words[0].startswith(("-", "...", "…")), words
    options = {name for parameter in command.params for name in parameter.opts} | {"--help", "--version"}
    used = {word.strip("[]").partition("=")[0] for word in words if word.strip("[]").startswith("--")}
    assert used <= options
