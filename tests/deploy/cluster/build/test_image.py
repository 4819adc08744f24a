"""The image of one program holds that program and runs it as a user of no machine."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

from deploy.cluster.build.image import write_program_image


def test_an_image_holds_one_program_and_starts_it(tmp_path: Path) -> None:
    program = tmp_path / "pause"
    program.write_bytes(b"program")
    program.chmod(0o755)
    (tmp_path / "images").mkdir()
    target = tmp_path / "images" / "pause.tar"
    write_program_image(target, "toolmesh.local/cluster/pause:1", program)
    first = target.read_bytes()
    write_program_image(target, "toolmesh.local/cluster/pause:1", program)
    assert target.read_bytes() == first
    assert [path.name for path in target.parent.iterdir()] == ["pause.tar"]
    with tarfile.open(target) as archive:
        blobs = {entry.name: archive.extractfile(entry).read() for entry in archive}  # type: ignore[union-attr]
    named = json.loads(blobs["index.json"])["manifests"][0]
    assert named["annotations"]["io.containerd.image.name"] == "toolmesh.local/cluster/pause:1"
    manifest = blob(blobs, named["digest"])
    config = blob(blobs, manifest["config"]["digest"])["config"]
    assert (config["Entrypoint"], config["User"]) == (["/pause"], "65532")
    layer = blobs[f"blobs/sha256/{manifest['layers'][0]['digest'].removeprefix('sha256:')}"]
    with tarfile.open(fileobj=io.BytesIO(layer)) as files:
        assert [(entry.name, entry.mode, entry.uid) for entry in files] == [("pause", 0o755, 0)]


def blob(blobs: dict[str, bytes], digest: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(blobs[f"blobs/sha256/{digest.removeprefix('sha256:')}"])
    return document
