"""Finds the manifests that must be registered with another one, because it names their tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from toolmesh.registry.v1.tool_manifest_pb2 import ToolManifest

from toolmesh_sdk.errors import ToolmeshError

_MISSING = frozenset({"compensation.exists", "idempotency.status_tool_exists"})


def by_tool(manifests: Iterable[ToolManifest]) -> dict[str, ToolManifest]:
    """Return manifests by the qualified names of their tools; of several versions of a tool the last one."""
    return {f"{each.namespace}.{each.tool_id}": each for each in manifests}


def lacks_reference(error: ToolmeshError) -> bool:
    """Return whether a registration was refused because a tool that it names is not registered."""
    return any(violation.rule in _MISSING for violation in error.violations)


def named_manifests(manifest: ToolManifest, known: Mapping[str, ToolManifest]) -> list[ToolManifest]:
    """Return those of the known manifests that this one names, and that those name, of its own namespace."""
    found: dict[str, ToolManifest] = {}
    waiting = [manifest]
    own = f"{manifest.namespace}.{manifest.tool_id}"
    while waiting:
        current = waiting.pop()
        for reference in (current.compensation_tool, current.idempotency.status_tool):
            name = reference.removeprefix("tools/")
            named = known.get(name)
            if named is not None and name != own and name not in found and named.namespace == manifest.namespace:
                found[name] = named
                waiting.append(named)
    return list(found.values())
