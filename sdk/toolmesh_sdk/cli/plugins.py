"""Loads commands of other packages through the entry point group `toolmesh.commands`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

import typer

GROUP = "toolmesh.commands"


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plugin, and the reason why its commands are missing if it failed to load."""

    name: str
    target: str
    problem: str = ""


def load_plugins(app: typer.Typer, points: Iterable[EntryPoint] | None = None) -> list[Plugin]:
    """Add the commands of every plugin. A plugin that fails is recorded and left out."""
    return [_load(app, point) for point in (entry_points(group=GROUP) if points is None else points)]


def _load(app: typer.Typer, point: EntryPoint) -> Plugin:
    commands, groups = list(app.registered_commands), list(app.registered_groups)
    try:
        register: Callable[[typer.Typer], None] = point.load()
        register(app)
    except Exception as error:
        # Commands that it added before it failed may not work either.
        app.registered_commands, app.registered_groups = commands, groups
        return Plugin(point.name, point.value, f"{type(error).__name__}: {error}")
    return Plugin(point.name, point.value)
