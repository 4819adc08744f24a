"""Each suite of kills has a mesh of its own, because others must not see it suffer, and two executors beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.executors.fleet import Fleet, fleet_of
from tests.harness.mesh import Mesh, running_mesh


@pytest.fixture(scope="module")
def own_mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    with running_mesh(tmp_path_factory.mktemp("mesh")) as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the tools of the executors note their effects."""
    return tmp_path_factory.mktemp("effects")


@pytest.fixture(scope="module")
def fleet(own_mesh: Mesh, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two executors whose tools book, and whose claims on a key end soon after they die."""
    logs = tmp_path_factory.mktemp("logs")
    environ = {"BOOKING_FAULTS": str(folder), "TOOLMESH_CLAIM_LEASE_SECONDS": "1.5"}
    with fleet_of(own_mesh, "tests.harness.executors.booking_executor", logs, 2, **environ) as running:
        yield running
