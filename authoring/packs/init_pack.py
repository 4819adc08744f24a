"""Writes a new pack: its description, a module with one tool, and the manifest of that tool."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from authoring.packs.manifest_files import stale_manifests, write_manifests
from authoring.packs.pack_folder import derive_pack
from libs.common.entry_points import PACK_NAME
from services.executor.adapters.runners.packs.packs import DESCRIPTION

MODULE = '''\
from toolmesh_tool import tool


@tool(mutation_class="read_only", tier="process", examples=[({"name": "Ada"}, {"result": "Hello, Ada!"})])
def greet(name: str) -> str:
    """Greets a person by name.

    Args:
        name: Whom to greet.
    """
    return f"Hello, {name}!"
'''


class PackNameError(ValueError):
    """The name cannot be that of a pack; the message says which name to take."""


def init_pack(folder: Path) -> list[Path]:
    """Write the pack and return its files. Raises PackNameError, and OSError if the folder exists."""
    folder = folder.absolute()
    name = folder.name
    require_pack_name(name)
    folder.mkdir(parents=True)
    description, module = folder / DESCRIPTION, folder / "tools.py"
    description.write_text(json.dumps({"name": name}) + "\n", encoding="utf-8")
    module.write_text(MODULE, encoding="utf-8")
    manifests = stale_manifests(folder, derive_pack(folder).manifests)
    write_manifests(manifests)
    return [description, module, *manifests]


def require_pack_name(name: str) -> None:
    """Raise PackNameError unless the executor takes a pack of this name."""
    if name in sys.stdlib_module_names or name == "toolmesh_tool":
        raise PackNameError(f"{name} is a module of Python or of the mesh; write {name}_tools")
    if PACK_NAME.fullmatch(name):
        return
    words = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    proposal = words if words[:1].isalpha() else f"pack_{words}".rstrip("_")
    proposal = (proposal if len(proposal) > 1 else f"{proposal}_tools")[:63]
    raise PackNameError(f"{name} is not lower case letters, digits and underscores; write {proposal}")
