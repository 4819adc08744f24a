"""Manifests as files: stale ones are found and replaced as a whole."""

from __future__ import annotations

import json
from pathlib import Path

from authoring.packs.manifest_files import manifest_path, stale_manifests, write_manifests


def test_only_what_changed_is_stale(tmp_path: Path) -> None:
    manifests = {"first": {"version": "1.0.0"}, "second": {"version": "1.0.0", "title": "Größe"}}
    stale = stale_manifests(tmp_path, manifests)
    assert set(stale) == {manifest_path(tmp_path, "first"), manifest_path(tmp_path, "second")}
    write_manifests(stale)
    assert stale_manifests(tmp_path, manifests) == {}
    assert json.loads(manifest_path(tmp_path, "second").read_text("utf-8")) == manifests["second"]
    manifests["first"]["version"] = "1.1.0"
    assert set(stale_manifests(tmp_path, manifests)) == {manifest_path(tmp_path, "first")}


def test_writing_leaves_nothing_else(tmp_path: Path) -> None:
    write_manifests(stale_manifests(tmp_path, {"first": {}}))
    assert [path.name for path in (tmp_path / "manifests").iterdir()] == ["first.json"]
    manifest_path(tmp_path, "first").write_bytes(b"\xff")
    assert stale_manifests(tmp_path, {"first": {}})
