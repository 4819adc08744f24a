"""The package as a whole: its names, and what it costs to import it."""

from __future__ import annotations

import subprocess
import sys

import pytest
import toolmesh_sdk


def test_every_public_name_can_be_had() -> None:
    assert {"Client", "AsyncClient", "Tls", "Result", "Reason", "RetryPolicy"} <= set(toolmesh_sdk.__all__)
    assert all(getattr(toolmesh_sdk, name) is not None for name in toolmesh_sdk.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        toolmesh_sdk.nothing  # noqa: B018


@pytest.mark.parametrize("module", ["toolmesh_sdk", "toolmesh_sdk.cli.main"])
def test_importing_does_not_load_grpc(module: str) -> None:
    code = f"import sys, {module}; sys.exit('grpc' in sys.modules or 'rich.console' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
