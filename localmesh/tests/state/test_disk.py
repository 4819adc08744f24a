from __future__ import annotations

from pathlib import Path

import pytest

from localmesh.state.disk import check_free_space
from localmesh.state.state import StateError


def test_a_mesh_does_not_start_on_a_disk_without_room(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="--state"):
        check_free_space(tmp_path, needed=10**18)
    assert str(tmp_path) in check_free_space(tmp_path, needed=0, comfortable=10**18)
    assert check_free_space(tmp_path, needed=0, comfortable=0) == ""
