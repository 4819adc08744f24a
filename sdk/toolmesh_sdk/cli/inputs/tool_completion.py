"""Completes tool names in a shell, and finds the tools that a mistyped name may mean."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from itertools import islice
from typing import Any

import typer
from toolmesh.common.v1.error_table import Reason

from toolmesh_sdk.cli.inputs.target import Target, open_client, select_mesh
from toolmesh_sdk.errors import ToolmeshError, error_from_failure

# A shell or the reader of an error waits for this; nothing is lost without it.
TIMEOUT_SECONDS = 2.0
MOST_NAMES = 5000
MOST_SUGGESTIONS = 3
_TARGET_OPTIONS = ("context", "url", "token", "state", "ca", "cert", "cert_key")


def complete_tool(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the tools that a shell may complete; none if the mesh cannot be asked."""
    chosen = {name: ctx.params[name] for name in _TARGET_OPTIONS if ctx.params.get(name) is not None}
    try:
        names = list_tool_names(select_mesh(Target(**chosen)))
    except typer.BadParameter:
        return []
    short = [name.removeprefix("core.") for name in names if name.startswith("core.")]
    return [name for name in (*short, *names) if name.startswith(incomplete)]


def with_suggestions(error: ToolmeshError, arguments: Mapping[str, Any], target: Target) -> ToolmeshError:
    """Return the error with the names that a tool that was not found may mean; any other error unchanged."""
    if error.reason is not Reason.TOOL_NOT_FOUND:
        return error
    asked = arguments.get("tool") or arguments.get("name") or arguments.get("tools") or ""
    names = list_tool_names(target)
    similar = [name for each in ([asked] if isinstance(asked, str) else asked) for name in similar_names(each, names)]
    if not similar:
        return error
    advice = f"Did you mean {' or '.join(similar)}? {error.resolution}".rstrip()
    return error_from_failure(dataclasses.replace(error.failure, resolution=advice))


def similar_names(asked: str, names: Iterable[str]) -> list[str]:
    """Return up to three names like the asked one, with or without its namespace."""
    candidates: dict[str, str] = {}
    for name in names:
        candidates[name] = name
        candidates.setdefault(name.rpartition(".")[2], name)
    tool = asked.removeprefix("tools/").partition("@")[0].partition("/")[0]
    matches = get_close_matches(tool, candidates, n=MOST_SUGGESTIONS)
    return list(dict.fromkeys(candidates[match] for match in matches))


def list_tool_names(target: Target) -> list[str]:
    """Return the tools that the caller may see; empty if the mesh cannot be asked."""
    try:
        with open_client(dataclasses.replace(target, timeout=TIMEOUT_SECONDS)) as client:
            return [listed.tool.name.removeprefix("tools/") for listed in islice(client.list_tools(), MOST_NAMES)]
    except (ToolmeshError, typer.BadParameter):
        return []
