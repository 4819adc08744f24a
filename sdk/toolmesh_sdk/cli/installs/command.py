"""Finds what a program of this machine needs to be seen by its sandbox."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from toolmesh_sdk.cli.installs.package import InstalledServer, InstallError, needs_mount


def find_command(command: tuple[str, ...]) -> InstalledServer:
    """Return a program with the folder of its environment: the virtual environment with its interpreter, or the
    folder that it is in. Raises InstallError."""
    found = shutil.which(command[0])
    if found is None:
        raise InstallError(f"there is no program {command[0]} on this machine")
    program = Path(found).absolute()
    return InstalledServer((str(program), *command[1:]), _environment(program), "", "")


def _environment(program: Path) -> tuple[Path, ...]:
    environment = program.parent.parent
    if (environment / "pyvenv.cfg").is_file():
        interpreter = Path(os.path.realpath(environment / "bin" / "python"))
        prefix = interpreter.parent.parent
        return (environment, prefix) if needs_mount(prefix) else (environment,)
    real = program.resolve()
    return tuple(dict.fromkeys(path.parent for path in (program, real) if needs_mount(path)))
