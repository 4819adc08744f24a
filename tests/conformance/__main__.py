"""Runs the official conformance suite of MCP against a whole mesh: `make conformance`.

    python -m tests.conformance [2025-11-25|2026-07-28 ...]

The suite is an npm package, pinned in package-lock.json; Node comes from a wheel. A failure that is not in
`expected-<revision>.yaml` fails the run, and so does an expected one that passes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.forwarder import Forwarder
from tests.conformance.upstream.server import FixtureServer
from tests.harness.clients.node import install_node, install_packages
from tests.harness.mesh import Mesh, cli, running_mesh

HERE = Path(__file__).parent
VIEW = "conformance"
REVISIONS = ("2025-11-25", "2026-07-28")
_PACKAGE = Path("node_modules") / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
_LONGEST_SECONDS = 900


def main(revisions: list[str]) -> int:
    """Run the suite of each revision, and return how many of them failed."""
    node, suite = install_node(), install_packages(HERE, VIEW) / _PACKAGE
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
