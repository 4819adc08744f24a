"""Stores the meshes that a person works with: the contexts of the command line."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import typer

LOCAL = "local"
SERVICES = ("registry", "authz", "executor", "approval", "audit", "gateway")


@dataclass(frozen=True, slots=True)
class Context:
    """One mesh: how callers reach it, and how its operator reaches its services."""

    url: str = ""
    ca: str = ""
    cert: str = ""
    key: str = ""
    token_file: str = ""
    services: dict[str, str] = field(default_factory=dict)
    """Addresses by service; that of `*` holds `{service}` and stands for all others."""


@dataclass(frozen=True, slots=True)
class Contexts:
    """All contexts, and the name of the one in use. `local` is the mesh of this machine and is never stored."""

    current: str = LOCAL
    meshes: dict[str, Context] = field(default_factory=dict)

    def get(self, name: str) -> Context | None:
        """Return a context; None for `local`. Refuses an unknown name."""
        if name == LOCAL:
            return None
        if name not in self.meshes:
            raise typer.BadParameter(f"there is no context {name}; {self._advice(name)}", param_hint="--context")
        return self.meshes[name]

    def _advice(self, name: str) -> str:
        similar = get_close_matches(name, [LOCAL, *self.meshes], n=1)
        return f"did you mean {similar[0]}?" if similar else f"`toolmesh context add {name} --url URL` adds it"


def config_folder() -> Path:
    """Return the user's configuration folder."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "toolmesh"


def contexts_file() -> Path:
    """Return the file of the contexts."""
    return config_folder() / "contexts.json"


def read_contexts() -> Contexts:
    """Return the stored contexts; refuse a file that is not theirs instead of losing it."""
    path = contexts_file()
    try:
        document = json.loads(path.read_bytes())
        meshes = {name: Context(**fields) for name, fields in document["contexts"].items()}
        return Contexts(str(document["current"]), meshes)
    except FileNotFoundError:
        return Contexts()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise typer.BadParameter(f"{path} cannot be read: {error}", param_hint="--context") from None


def write_contexts(contexts: Contexts) -> None:
    """Replace the file atomically; only its owner can read it."""
    path = contexts_file()
    document: dict[str, Any] = {
        "current": contexts.current,
        "contexts": {name: asdict(context) for name, context in sorted(contexts.meshes.items())},
    }
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft.touch(mode=0o600)
        draft.write_text(json.dumps(document, indent=2) + "\n")
        draft.replace(path)
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be written: {error.strerror}", param_hint="NAME") from None


def complete_context(incomplete: str) -> list[str]:
    """Return the names that a shell may complete."""
    try:
        names = [LOCAL, *read_contexts().meshes]
    except typer.BadParameter:
        return []
    return [name for name in names if name.startswith(incomplete)]
