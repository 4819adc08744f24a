"""Writes a reproducible OCI image of a few files as a tar that `ctr images import` takes."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_OCI = "application/vnd.oci.image"
_USER = "65532"


def write_image(target: Path, name: str, files: Mapping[str, Path], entrypoint: Sequence[str]) -> None:
    """Writes an image that holds programs only. Its user is none of the machine's."""
    layer = _tar({path: source.read_bytes() for path, source in files.items()}, mode=0o755)
    config = _json(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": list(entrypoint), "User": _USER, "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": f"{_OCI}.manifest.v1+json",
            "config": _descriptor(f"{_OCI}.config.v1+json", config),
            "layers": [_descriptor(f"{_OCI}.layer.v1.tar", layer)],
        }
    )
    named = {
        **_descriptor(f"{_OCI}.manifest.v1+json", manifest),
        "platform": {"architecture": "amd64", "os": "linux"},
        "annotations": {"io.containerd.image.name": name},
    }
    blobs = {f"blobs/sha256/{_digest(blob)[7:]}": blob for blob in (layer, config, manifest)}
    index = _json({"schemaVersion": 2, "manifests": [named]})
    layout = _json({"imageLayoutVersion": "1.0.0"})
    fresh = target.with_name(f"{target.name}.{os.getpid()}")
    fresh.write_bytes(_tar({"oci-layout": layout, "index.json": index, **blobs}, mode=0o644))
    fresh.rename(target)


def _descriptor(kind: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": _digest(blob), "size": len(blob)}


def _tar(files: Mapping[str, bytes], mode: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, content in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True).encode()
