"""The meshes of the scenarios. `tests/harness/shared_meshes.py` says which files use which."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.harness.mesh import Mesh, running_mesh

# They end with this folder and not with the session: the tests that a worker runs after it need its processor.
# The namespaces of connected servers that have a view.
VIEWS = ("fixtures", "watched")


@pytest.fixture(scope="package")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """A mesh that the tests leave as they found it."""
    with running_mesh(tmp_path_factory.mktemp("mesh")) as running:
        yield running


@pytest.fixture(scope="package")
def killed_mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """A mesh whose processes the tests kill."""
    with running_mesh(tmp_path_factory.mktemp("killed")) as running:
        yield running


@pytest.fixture(scope="package")
def mesh_of_two_executors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """A mesh with two executors that may call services of this machine."""
    state = tmp_path_factory.mktemp("two-executors") / "state"
    with running_mesh(state, "--scale", "executor=2", TOOLMESH_EGRESS_INTERNAL="127.0.0.0/8") as running:
        yield running


@pytest.fixture(scope="package")
def mesh_with_views(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """A mesh that may call services of this machine, with views of connected servers."""
    folder = tmp_path_factory.mktemp("views")
    views = folder / "views.json"
    views.write_text(json.dumps({"views": {name: {"namespace": name} for name in VIEWS}}))
    settings = {"TOOLMESH_MCP_VIEWS": str(views), "TOOLMESH_EGRESS_INTERNAL": "127.0.0.0/8"}
    with running_mesh(folder / "state", **settings) as running:
        yield running
