"""A tool that cannot be undone, so that every call of it needs a person."""

from __future__ import annotations

import json
from pathlib import Path

from tests.harness.mesh import Mesh, cli

MANIFESTS = Path("examples/packs/textkit/manifests")
SHRED = "samples.shred_report"


def register_shred_report(mesh: Mesh, folder: Path, version: str = "1.0.0") -> None:
    """Register the removal of reports as a tool that cannot be undone."""
    manifest = json.loads((MANIFESTS / "remove_report.json").read_bytes())
    manifest |= {"tool_id": "shred_report", "version": version, "mutation_class": "write_irreversible"}
    del manifest["compensation_tool"]
    file = folder / f"shred-{version}.json"
    file.write_text(json.dumps(manifest))
    cli("tools", "register", str(file), state=mesh.state)
