"""The client library as its users install it: a wheel in an empty virtual environment, calling a running mesh."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.mesh import Mesh, running_mesh
from tools.build_sdk import build

pytestmark = pytest.mark.dist


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds the wheel and what it depends on."""
    folder = tmp_path_factory.mktemp("dist")
    wheel = build(folder)
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    interpreter = folder / "venv" / "bin" / "python"
    install = ["-m", "pip", "install", "-q", "--disable-pip-version-check", str(wheel)]
    subprocess.run([str(interpreter), *install], check=True)
    return interpreter


def test_the_library_depends_on_little(python: Path) -> None:
    listed = subprocess.run(
        [str(python), "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check"],
        check=True,
        capture_output=True,
        text=True,
    )
    names = {line.partition("==")[0].lower().replace("_", "-") for line in listed.stdout.split()}
    needed = {"toolmesh-sdk", "grpcio", "protobuf", "googleapis-common-protos", "rfc8785", "typing-extensions"}
    assert names - {"pip", "setuptools"} == needed


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    with running_mesh(tmp_path_factory.mktemp("mesh")) as running:
        yield running


def test_the_example_agent_finds_and_calls_a_tool(python: Path, mesh: Mesh, repository: Path) -> None:
    environment = {**os.environ, "TOOLMESH_URL": mesh.url, "TOOLMESH_TOKEN": mesh.token()}
    command = [str(python), "-I", str(repository / "examples" / "agent.py"), "compute 6 * 7"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "42" in done.stdout


def test_both_clients_are_typed_and_importable(python: Path) -> None:
    code = (
        "import toolmesh_sdk, pathlib; [getattr(toolmesh_sdk, name) for name in toolmesh_sdk.__all__];"
        "folder = pathlib.Path(toolmesh_sdk.__file__).parent; assert (folder / 'py.typed').is_file()"
    )
    subprocess.run([str(python), "-I", "-c", code], check=True)
