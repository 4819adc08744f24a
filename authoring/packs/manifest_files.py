"""The manifests of a pack as files: which are stale, and writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = "manifests"


def manifest_path(folder: Path, tool_id: str) -> Path:
    """Return the file of a tool's manifest."""
    return folder / FOLDER / f"{tool_id}.json"


def stale_manifests(folder: Path, manifests: Mapping[str, Mapping[str, Any]]) -> dict[Path, str]:
    """Return the files whose content would change, each with its new content."""
    wanted = {
        manifest_path(folder, tool_id): json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
        for tool_id, manifest in manifests.items()
    }
    return {path: text for path, text in wanted.items() if _read(path) != text}


def write_manifests(files: Mapping[Path, str]) -> None:
    """Write each file as a whole: an executor or an editor that reads it meanwhile sees the old or the new one."""
    for path, text in files.items():
        path.parent.mkdir(exist_ok=True)
        temporary = path.with_name(f".{path.name}.new")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
