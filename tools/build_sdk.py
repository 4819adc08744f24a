"""Build the client library as a wheel of its own: the library, the generated stubs, and no command line.

python tools/build_sdk.py build/dist
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The command line needs more packages and comes with the mesh.
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "cli", "__main__.py")


def build(target: Path) -> Path:
    """Build the wheel into the folder, in place of an earlier one; return its path."""
    target.mkdir(parents=True, exist_ok=True)
    for earlier in target.glob("toolmesh_sdk-*.whl"):
        earlier.unlink()
    with tempfile.TemporaryDirectory() as scratch:
        stage = Path(scratch)
        shutil.copytree(ROOT / "sdk" / "toolmesh_sdk", stage / "toolmesh_sdk", ignore=_LEFT_OUT)
        for stubs in ("toolmesh", "buf"):
            shutil.copytree(ROOT / "gen" / stubs, stage / stubs, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "sdk" / "pyproject.toml", stage)
        shutil.copy(ROOT / "LICENSE", stage)
        options = ("-q", "--disable-pip-version-check", "--no-deps", "--no-build-isolation")
        subprocess.run(
            [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(target.resolve()), str(stage)],
            check=True,
        )
    (wheel,) = target.glob("toolmesh_sdk-*.whl")
    return wheel


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))
