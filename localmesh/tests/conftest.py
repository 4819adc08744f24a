"""Meshes for the tests. Each ends with its test, whatever the test did to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localmesh.state.state import State, open_state
from localmesh.tests.harness import Commands

# Low enough to be reached by a test, high enough for every other test to stay below it.
EDGE_RATE, EDGE_BURST = 5, 60


@pytest.fixture
def state(tmp_path: Path) -> State:
    return open_state(tmp_path / "state")


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    """Commands on a state folder of their own, with the light composition unless the test chooses another."""
    commands = Commands(tmp_path / "state")
    yield commands
    commands.run("down")


# Of this folder and not of the session: the tests that a worker runs after these need its processor.
@pytest.fixture(scope="package")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """One whole mesh for all tests that only talk to it: real PostgreSQL, Valkey and Envoy, stand-ins for the
    services."""
    environment = {"TOOLMESH_EDGE_RATE": str(EDGE_RATE), "TOOLMESH_EDGE_BURST": str(EDGE_BURST)}
    commands = Commands(tmp_path_factory.mktemp("mesh") / "state", "whole_mesh", environment)
    commands.up()
    yield commands
    commands.run("down")
