"""Writes the image of one static program."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from deploy.images import oci
from deploy.images.platform import PLATFORMS

# None of the machine's users.
_USER = "65532"


def write_program_image(target: Path, reference: str, program: Path) -> None:
    """Writes an image that holds a program and nothing else. A file of that name appears only when it is whole."""
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        root, fresh = Path(work) / "root", Path(work) / "image"
        root.mkdir()
        shutil.copy(program, root / program.name)
        layer = oci.write_layer(root, Path(work) / "layer")
        config = oci.ImageConfig(reference, (f"/{program.name}",), _USER, PLATFORMS["amd64"])
        oci.write_image(config, [layer], fresh)
        fresh.replace(target)
