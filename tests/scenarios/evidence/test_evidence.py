"""The evidence of a whole mesh, as an auditor sees it: through the edge, and then with nothing but the key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.harness.mesh import cli


def test_an_auditor_verifies_the_running_log_and_takes_it_away(mesh: Any, tmp_path: Path) -> None:
    cli("call", "echo", "--arg", "text=hello", state=mesh.state)
    kept = tmp_path / "kept.json"
    first = json.loads(cli("audit", "verify", "--pinned", str(kept), "--json", state=mesh.state).stdout)
    assert first["outcome"] == "ok"
    assert first["records"] > 0
    cli("call", "echo", "--arg", "text=again", state=mesh.state)
    again = json.loads(
        cli("audit", "verify", "--pinned", str(kept), "--sample", "5", "--json", state=mesh.state).stdout
    )
    assert (again["outcome"], again["remarks"]) == ("ok", []), "the key is pinned by now"

    out = tmp_path / "out"
    done = json.loads(
        cli("audit", "export", "--out", str(out), "--parquet", "--ocsf", "--json", state=mesh.state).stdout
    )
    assert done["records"] >= first["records"]
    report = json.loads(cli("audit", "verify", str(out), "--key", done["verifier_key"], "--json").stdout)
    assert (report["outcome"], report["records"]) == ("ok", done["records"])
