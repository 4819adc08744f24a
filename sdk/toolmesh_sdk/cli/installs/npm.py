"""Installs MCP servers from an npm registry, once, by the hashes of a lock file and without running their scripts."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from pathlib import Path

from toolmesh_sdk.cli.installs.package import (
    InstalledServer,
    InstallError,
    digest_of,
    make_read_only,
    needs_mount,
    run_installer,
)

_PACKAGE = re.compile(r"((?:@[a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*)(@[A-Za-z0-9.+_-]+)?")
_NPM = ("npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")


def install_npm(package: str, arguments: tuple[str, ...], folder: Path) -> InstalledServer:
    """Install `@modelcontextprotocol/server-filesystem` into a folder below `folder`. Raises InstallError."""
    match = _PACKAGE.fullmatch(package)
    if match is None:
        raise InstallError(f"{package!r} is not a package, such as @modelcontextprotocol/server-filesystem")
    node = shutil.which("node")
    if node is None:
        raise InstallError("node is not installed on this machine")
    place, lock = _install(package, folder)
    described = json.loads((place / "node_modules" / match[1] / "package.json").read_bytes())
    program = _program(described)
    runtime = Path(node).resolve()
    mounts = (place, runtime.parent.parent) if needs_mount(runtime) else (place,)
    command = (str(runtime), str(place / "node_modules" / match[1] / program), *arguments)
    return InstalledServer(command, mounts, f"npm:{match[1]}@{described['version']}", digest_of(lock))


def _install(package: str, folder: Path) -> tuple[Path, bytes]:
    folder.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(dir=folder))
    try:
        run_installer((*_NPM, "--package-lock-only", "--prefix", str(staged), package))
        lock = (staged / "package-lock.json").read_bytes()
        name = re.sub(r"[^a-z0-9]+", "-", package.lower()).strip("-")
        place = folder / f"{name}-{digest_of(lock).removeprefix('sha256:')[:12]}"
        if not place.exists():
            # Installs exactly what the lock file names, and checks every hash in it.
            run_installer(("npm", "ci", *_NPM[2:], "--prefix", str(staged)))
            make_read_only(staged)
            staged.rename(place)
        return place, lock
    finally:
        if staged.exists():
            shutil.rmtree(staged, ignore_errors=True)


def _program(described: dict[str, object]) -> str:
    programs = described.get("bin")
    if isinstance(programs, dict):
        programs = next(iter(programs.values()), None)
    if not isinstance(programs, str):
        raise InstallError(f"{described.get('name')} installs no program, so it is no MCP server")
    return programs
