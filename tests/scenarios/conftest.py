"""The mesh of the scenarios."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.mesh import Mesh, running_mesh


# Of this folder and not of the session: the tests that a worker runs after these need its processor.
@pytest.fixture(scope="package")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """A whole mesh of real processes, shared by all scenarios that leave it as they found it."""
    with running_mesh(tmp_path_factory.mktemp("mesh")) as running:
        yield running
