"""Converts tool names between their short form (`echo@1.2.0`) and resource names, and describes similar ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from toolmesh.registry.v1.tool_trust_pb2 import LookAlike


def version_name(name: str) -> str:
    """Return the resource name of a version written as `echo@1.2.0`; refuse a name without a version."""
    if "/versions/" in name:
        return name
    tool, _, version = name.partition("@")
    if not version:
        raise typer.BadParameter(f"add a version: {name.removesuffix('@')}@1.0.0", param_hint="NAME")
    return f"tools/{tool if '.' in tool else 'core.' + tool}/versions/{version}"


def tool_or_version(name: str) -> str:
    """Return the name of a tool unchanged, and `echo@1.2.0` as the resource name of a version."""
    return version_name(name) if "@" in name else name


def short_name(name: str) -> str:
    """Return the short form of a resource name."""
    return name.removeprefix("tools/").replace("/versions/", "@")


def describe_look_alikes(alike: Iterable[LookAlike]) -> str:
    """Return the names that are easily taken for a tool's, each with which of the two is older."""
    return ", ".join(f"{short_name(each.name)} ({'older' if each.older else 'newer'})" for each in alike)


def look_alike_remark(alike: Iterable[LookAlike]) -> str:
    """Return a remark behind the title of a tool; empty if no name is easily taken for its own."""
    described = describe_look_alikes(alike)
    return f" (not to be confused with {described})" if described else ""
