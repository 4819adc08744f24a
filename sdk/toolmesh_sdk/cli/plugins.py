"""Commands of other packages: whoever declares the entry point group adds to the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

import typer

GROUP = "toolmesh.commands"


@dataclass(frozen=True, slots=True)
class Plugin:
    """One package's commands, and why they are missing where they are."""

    name: str
    target: str
    problem: str = ""


def load_plugins(app: typer.Typer, found: Iterable[EntryPoint] | None = None) -> list[Plugin]:
    """Let every plugin add its commands. A broken one is noted and left out; it never breaks the rest."""
    points = entry_points(group=GROUP) if found is None else found
    return [_load(app, point) for point in points]


def _load(app: typer.Typer, point: EntryPoint) -> Plugin:
    commands, groups = list(app.registered_commands), list(app.registered_groups)
    try:
        register: Callable[[typer.Typer], None] = point.load()
        register(app)
    except Exception as error:
        # What it added before it broke may not work either.
        app.registered_commands, app.registered_groups = commands, groups
        return Plugin(point.name, point.value, f"{type(error).__name__}: {error}")
    return Plugin(point.name, point.value)
