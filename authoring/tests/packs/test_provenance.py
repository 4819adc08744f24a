"""The provenance of a pack: its revision and the key of its publisher."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from toolmesh_sdk.manifests.parse import manifest_from

from authoring.packs.provenance import ProvenanceError, Publisher, read_key, revision_of
from services.registry.convert.manifest import manifest_of
from services.registry.domain.publishing.rules.provenance import verify_signature

MANIFEST = {
    "namespace": "acme",
    "tool_id": "greet",
    "description": "Greets a person by name.",
    "mutation_class": "read_only",
    "execution": {"entry_point": "greeter/tools:greet"},
}


def test_the_registry_accepts_what_is_signed(tmp_path: Path) -> None:
    manifest = manifest_from(MANIFEST)
    Publisher(read_key(tmp_path / "keys" / "key.pem"), "sha256:" + "a" * 64, "v1").sign(manifest)
    assert not [*verify_signature(manifest_of(manifest))]
    manifest.version = "1.0.1"
    assert [*verify_signature(manifest_of(manifest))]


def test_a_key_is_made_once_and_for_its_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "key.pem"
    first = read_key(path).private_bytes_raw()
    assert read_key(path).private_bytes_raw() == first
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("no key")
    with pytest.raises(ProvenanceError):
        read_key(path)


def test_the_revision_is_that_of_committed_files(tmp_path: Path) -> None:
    with pytest.raises(ProvenanceError):
        revision_of(tmp_path)
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.com")
    (tmp_path / "pack.json").write_text("{}")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    with pytest.raises(ProvenanceError):
        revision_of(tmp_path)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    subprocess.run(["git", *identity, "commit", "-q", "-m", "first"], cwd=tmp_path, check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert revision_of(tmp_path) == head.stdout.strip()
    (tmp_path / "pack.json").write_text('{"name": "x"}')
    with pytest.raises(ProvenanceError):
        revision_of(tmp_path)
