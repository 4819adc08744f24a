"""What the machine lacks is named at once, before anything is done."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deploy.cluster.errors import ClusterError
from deploy.cluster.requirements import BUILD_PROGRAMS, RUN_PROGRAMS, require_machine, require_room, require_root


def test_all_missing_programs_are_in_one_message() -> None:
    with pytest.raises(ClusterError) as raised:
        require_machine(BUILD_PROGRAMS, which=lambda name: "/bin/gcc" if name == "gcc" else None)
    missing = {name for name in BUILD_PROGRAMS if f"{name} (" in str(raised.value)}
    assert missing == BUILD_PROGRAMS.keys() - {"gcc"}


def test_a_machine_with_all_programs_passes() -> None:
    require_machine({**RUN_PROGRAMS, **BUILD_PROGRAMS}, which=lambda name: f"/bin/{name}")


def test_an_ordinary_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ClusterError):
        require_root()


def test_a_full_disk_is_refused_also_for_a_folder_that_is_yet_to_be_made(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "cluster"
    require_room(folder, needed=1)
    with pytest.raises(ClusterError):
        require_room(folder, needed=1 << 60)
    assert not folder.parent.exists()
