"""Converts tool names between their short form (`echo@1.2.0`) and resource names."""

from __future__ import annotations

import typer


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
