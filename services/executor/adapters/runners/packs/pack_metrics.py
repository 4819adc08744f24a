"""Exports which packs are loaded, so that deployments see which code each executor runs."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import Gauge

from services.executor.adapters.runners.packs.packs import Pack

loaded_packs = Gauge(
    "toolmesh_tool_pack_loaded", "1 for each loaded tool pack and the digest of its files.", ["pack", "digest"]
)


def export_packs(packs: Iterable[Pack]) -> None:
    """Replace the exported packs."""
    loaded_packs.clear()
    for pack in packs:
        loaded_packs.labels(pack.name, pack.digest).set(1)
