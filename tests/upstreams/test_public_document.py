"""A public OpenAPI document of more than a thousand operations, from a package, comes in and is called."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.harness.mesh import cli, running_mesh
from tests.harness.servers.rest_server import rest_server

pytestmark = [pytest.mark.upstreams, pytest.mark.timeout(3000)]
PACKAGE = "@octokit/openapi@23.0.2"
DIGEST = "pV8M7L9GY23AybNvTmo2nyjmpmnt6+2sRE/tqr0ZLQcPS4lnw7u5eZGNmwRNkBC3D7gZXbFx5AHzLUVRBXGDhg=="
DOCUMENT = "package/generated/api.github.com.json"


def fetch_document(folder: Path) -> Path:
    """Fetch the package, check its hash and unpack the document."""
    command = ["npm", "pack", PACKAGE, "--silent", "--pack-destination", str(folder)]
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    [archive] = folder.glob("*.tgz")
    assert base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode() == DIGEST
    with tarfile.open(archive) as packed:
        packed.extract(DOCUMENT, folder, filter="data")
    return folder / DOCUMENT


def test_every_operation_of_a_public_document_comes_in_or_says_why(tmp_path: Path) -> None:
    document = fetch_document(tmp_path)
    with (
        running_mesh(tmp_path / "state", TOOLMESH_EGRESS_INTERNAL="127.0.0.0/8") as mesh,
        rest_server() as api,
    ):

        def toolmesh(*words: str) -> dict[str, Any]:
            return json.loads(cli(*words, "--json", state=mesh.state).stdout)  # type: ignore[no-any-return]

        words = ("connect", "openapi", str(document), "--id", "github", "--server", api.url, "--timeout", "450")
        tools = toolmesh(*words)["upstream"]["tools"]
        counts = Counter(tool["state"] for tool in tools)
        sys.stdout.write(f"{PACKAGE}: {len(tools)} operations, {dict(counts)}\n")
        assert counts["admitted"] > 1200
        for tool in tools:
            if tool["state"] != "admitted":
                assert tool["findings"]
                sys.stdout.write(f"{tool['native_name']}: {tool['findings'][0]['message']}\n")
        toolmesh("call", "github.repos_get", '{"owner": "python", "repo": "cpython"}')
        assert api.seen[-1]["path"] == "/repos/python/cpython"
