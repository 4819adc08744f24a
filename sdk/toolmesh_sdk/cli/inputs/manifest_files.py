"""Finds the manifest files of a command line."""

from __future__ import annotations

from pathlib import Path

import typer


def manifest_files(paths: list[Path]) -> list[Path]:
    """Return the files, those of folders included."""
    files = list[Path]()
    for path in paths:
        found = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not found:
            raise typer.BadParameter(f"{path} has no .json file", param_hint="MANIFEST")
        files += found
    return files
