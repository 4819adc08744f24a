"""The first call as docs/deploy.md writes it, on the node, where the ports of the page are free."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deploy.cluster.node.entry import enter_node
from tests.cluster.deployed_mesh import DeployedMesh
from tests.cluster.running_cluster import REPOSITORY
from tests.harness.clients.documents import blocks

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
PAGE = REPOSITORY / "docs" / "deploy.md"


def test_the_first_call_of_the_page_works_as_it_is_written(mesh: DeployedMesh, tmp_path: Path) -> None:
    [block] = [each for each in blocks(PAGE) if "export TOOLMESH_URL=http://localhost:8080" in each.lines]
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    # The command line of this checkout, then the programs of the node.
    path = f"export PATH={Path(sys.executable).parent}:$PATH"
    script = "\n".join(("set -eo pipefail", 'trap "kill %1 %2" EXIT', path, *block.lines))
    words = ["env", f"--chdir={tmp_path}", f"HOME={tmp_path}", "bash", "-c", script]
    command = enter_node(mesh.cluster.state).command(words)
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
