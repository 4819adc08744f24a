"""The start of a cluster, without its processes: gVisor is used where all of it is; what is copied exists."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.cluster.up import ADDONS, find_gvisor


def install(folder: Path, name: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)
    return folder / name


def test_gvisor_is_found_in_the_checkout_and_on_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "machine"))
    assert find_gvisor(tmp_path / "checkout") == []
    runsc = install(tmp_path / "checkout", "runsc")
    assert find_gvisor(tmp_path / "checkout") == []
    shim = install(tmp_path / "machine", "containerd-shim-runsc-v1")
    assert find_gvisor(tmp_path / "checkout") == [runsc, shim]


def test_every_addon_is_in_the_checkout() -> None:
    assert {path.stem for path in ADDONS.glob("*.yaml")} == {"coredns", "gvisor", "metrics-server", "netpol"}
