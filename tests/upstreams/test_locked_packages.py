"""Public packages, locked by hash with one command, are imported inside the sandbox."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.mesh import cli

pytestmark = [pytest.mark.upstreams, pytest.mark.timeout(3000)]
TOOLS = '''
import requests
from toolmesh_tool import tool


@tool(mutation_class="read_only", tier="process", examples=[({}, {"result": "2"})])
def major() -> str:
    """Says which major version of requests is in the sandbox."""
    return requests.__version__.partition(".")[0]
'''


def test_a_locked_package_is_imported_in_the_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    pack = tmp_path / "asking"
    cli("pack", "init", str(pack))
    (pack / "tools.py").write_text(TOOLS)
    cli("pack", "lock", str(pack), "--add", "requests==2.34.2")
    assert len(list((pack / "wheels").glob("*.whl"))) >= 5
    for path in (pack / "manifests").iterdir():
        path.unlink()
    cli("pack", "build", str(pack))
    cli("pack", "check", str(pack))
    tried = json.loads(cli("pack", "test", str(pack), "--cases", "2", "--json").stdout)
    assert (tried["tools"][0]["problems"], tried["tools"][0]["examples"]) == ([], 1)
