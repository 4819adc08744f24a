"""What stands beside the mesh is pinned, and no address is in its locks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.environment.virtualenvs import python_from

LOCKS = ["bench/requirements.lock", *(f"bench/peers/{name}.lock" for name in ("fastmcp", "mcp_sdk", "contextforge"))]
LOCKS += ["bench/peers/agent_governance.lock"]


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_pins_every_package_with_hashes_and_names_no_host(repository: Path, lock: str) -> None:
    text = (repository / lock).read_text()
    entries = [entry for entry in re.split(r"\n(?=\S)", text) if entry.strip()]
    assert entries
    assert [entry for entry in entries if "==" not in entry or "--hash=sha256:" not in entry] == []
    assert "://" not in text


def test_a_python_is_at_least_as_new_as_was_asked() -> None:
    assert python_from((3, 0)) is not None
    assert python_from((3, 99)) is None
