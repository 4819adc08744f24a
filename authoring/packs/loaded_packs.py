"""Asks the executors of a local mesh which packs they have loaded, and which folders they watch."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from services.executor.adapters.runners.packs.packs import DESCRIPTION

_LOADED = re.compile(r'^toolmesh_tool_pack_loaded\{digest="([^"]*)",pack="([^"]*)"\} 1', re.MULTILINE)
_PAUSE_SECONDS = 0.05
_REQUEST_SECONDS = 5


class NotLoadedError(Exception):
    """A pack cannot be loaded; the message says what to do."""


def folder_for(pack: Path, folders: list[str]) -> Path | None:
    """Return the folder of the mesh to install a pack in; None if executors read the pack where it is."""
    watched = [Path(folder).resolve() for folder in folders]
    if pack.parent in watched:
        return None
    *others, own = watched
    for folder in others:
        if (folder / pack.name / DESCRIPTION).is_file():
            raise NotLoadedError(f"the mesh has another pack of the name {pack.name}, in {folder}; rename yours")
    return own


def loaded_digests(runtime: dict[str, Any], pack: str) -> list[str]:
    """Return the digest that each executor has loaded of a pack; empty for one that has none."""
    executors = [part["ops"] for part in runtime["services"] if part["name"].partition("-")[0] == "executor"]
    return [_loaded(address).get(pack, "") for address in executors]


def wait_until_loaded(runtime: dict[str, Any], pack: str, digest: str, seconds: float) -> None:
    """Return when every executor has loaded this version of a pack. Raises NotLoadedError."""
    end = time.monotonic() + seconds
    while set(loaded_digests(runtime, pack)) != {digest}:
        if time.monotonic() > end:
            raise NotLoadedError("the executor does not load it; see: toolmesh logs executor -n 20")
        time.sleep(_PAUSE_SECONDS)


def _loaded(address: str) -> dict[str, str]:
    try:
        with urlopen(f"http://{address}/metrics", timeout=_REQUEST_SECONDS) as answer:
            text = answer.read().decode()
    except OSError:
        return {}
    return {pack: digest for digest, pack in _LOADED.findall(text)}
