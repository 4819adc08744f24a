"""The metric of loaded packs."""

from __future__ import annotations

from pathlib import Path

from services.executor.adapters.runners.packs.pack_metrics import export_packs, loaded_packs
from services.executor.adapters.runners.packs.packs import Pack


def packs(*digests: str) -> list[Pack]:
    return [Pack("kit", digest, Path("/copies/0"), frozenset(), frozenset()) for digest in digests]


def test_only_what_is_loaded_is_exported() -> None:
    for digest in ("sha256:1", "sha256:2"):
        export_packs(packs(digest))
        [metric] = loaded_packs.collect()
        assert [sample.labels for sample in metric.samples] == [{"pack": "kit", "digest": digest}]
    export_packs([])
    [metric] = loaded_packs.collect()
    assert metric.samples == []
