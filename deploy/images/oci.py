"""Writes OCI images as tar files that `ctr images import` and registries accept. The same folders give the same bytes.

Layers are not compressed: a compressor's output depends on its version, and an image is imported faster without it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from deploy.images.platform import Platform

_TYPE = "application/vnd.oci.image"
CREATED = "1970-01-01T00:00:00Z"


@dataclass(frozen=True)
class Blob:
    """A file that an image names by its digest."""

    path: Path
    digest: str
    size: int


@dataclass(frozen=True)
class ImageConfig:
    """What a container of an image runs."""

    name: str
    entrypoint: Sequence[str]
    user: str
    platform: Platform
    working_dir: str = "/"
    environment: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


def write_layer(folder: Path, target: Path) -> Blob:
    """Write a folder as a layer: sorted names, no times, owned by root, modes 0755 or 0644."""
    with target.open("wb") as file, tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as layer:
        for path in _sorted_paths(folder):
            entry = _normalized(layer.gettarinfo(path, str(path.relative_to(folder))))
            if entry.isreg():
                with path.open("rb") as content:
                    layer.addfile(entry, content)
            else:
                layer.addfile(entry)
    return _blob(target)


def write_image(config: ImageConfig, layers: Sequence[Blob], target: Path) -> str:
    """Write an image and return the digest of its manifest."""
    document = _encode(_config(config, layers))
    manifest = _encode(_manifest(document, layers))
    index = _encode(_index(config, manifest))
    with tarfile.open(target, "w") as archive:
        _add(archive, "oci-layout", _encode({"imageLayoutVersion": "1.0.0"}))
        _add(archive, "index.json", index)
        for content in (document, manifest):
            _add(archive, f"blobs/sha256/{hashlib.sha256(content).hexdigest()}", content)
        for layer in {layer.digest: layer for layer in layers}.values():
            with layer.path.open("rb") as file:
                _add_stream(archive, f"blobs/sha256/{layer.digest.removeprefix('sha256:')}", file, layer.size)
    return digest_of(manifest)


def digest_of(content: bytes) -> str:
    """Return the digest of some bytes as images write it."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _sorted_paths(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders.sort()
        yield from (Path(place) / name for name in sorted(folders + files))


def _normalized(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mtime = entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    if entry.islnk():
        raise ValueError(f"{entry.name} is a hard link")
    sticky = entry.mode & stat.S_ISVTX
    entry.mode = 0o1777 if sticky else 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    if entry.issym():
        entry.mode = 0o777
    return entry


def _config(config: ImageConfig, layers: Sequence[Blob]) -> dict[str, Any]:
    return {
        "architecture": config.platform.name,
        "os": "linux",
        "created": CREATED,
        "config": {
            "Env": [f"{name}={value}" for name, value in sorted(config.environment.items())],
            "Entrypoint": list(config.entrypoint),
            "WorkingDir": config.working_dir,
            "User": config.user,
            "Labels": dict(config.labels),
        },
        "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in layers]},
        "history": [{"created": CREATED, "created_by": "deploy.images"} for _ in layers],
    }


def _manifest(config: bytes, layers: Sequence[Blob]) -> dict[str, Any]:
    return {
        "schemaVersion": 2,
        "mediaType": f"{_TYPE}.manifest.v1+json",
        "config": {"mediaType": f"{_TYPE}.config.v1+json", "digest": digest_of(config), "size": len(config)},
        "layers": [{"mediaType": f"{_TYPE}.layer.v1.tar", "digest": each.digest, "size": each.size} for each in layers],
    }


def _index(config: ImageConfig, manifest: bytes) -> dict[str, Any]:
    annotations = {
        "io.containerd.image.name": config.name,
        "org.opencontainers.image.ref.name": config.name.rpartition(":")[2],
    }
    entry = {
        "mediaType": f"{_TYPE}.manifest.v1+json",
        "digest": digest_of(manifest),
        "size": len(manifest),
        "platform": {"architecture": config.platform.name, "os": "linux"},
        "annotations": annotations,
    }
    return {"schemaVersion": 2, "mediaType": f"{_TYPE}.index.v1+json", "manifests": [entry]}


def _encode(document: object) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _blob(path: Path) -> Blob:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Blob(path, f"sha256:{digest}", path.stat().st_size)


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    _add_stream(archive, name, io.BytesIO(content), len(content))


def _add_stream(archive: tarfile.TarFile, name: str, content: IO[bytes], size: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = size
    archive.addfile(entry, content)
