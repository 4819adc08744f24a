"""The start of a cluster, without its processes: what is copied exists."""

from __future__ import annotations

from deploy.cluster.up import ADDONS


def test_every_addon_is_in_the_checkout() -> None:
    assert {path.stem for path in ADDONS.glob("*.yaml")} == {"coredns", "gvisor", "metrics-server", "netpol"}
