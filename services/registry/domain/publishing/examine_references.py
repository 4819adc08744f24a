"""Checks that the tools that a manifest names exist: its compensation and its status tool."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

from libs.common.errors import MeshError, Violation
from libs.common.tool_names import ToolName
from services.registry.domain.model import LifecycleState
from services.registry.domain.ports import Catalogue
from services.registry.domain.publishing.manifest import Manifest

_GONE = frozenset({LifecycleState.SUNSET, LifecycleState.RETIRED})


@dataclass(frozen=True, slots=True)
class ReferenceFindings:
    """What refuses the manifest, and what is only said."""

    blocked: tuple[Violation, ...] = ()
    warned: tuple[Violation, ...] = ()


async def examine_references(
    manifest: Manifest, catalogue: Catalogue, *, beside: Container[ToolName] = (), imported: bool = False
) -> ReferenceFindings:
    """Return what is wrong with the tools that a manifest names: each must be registered, or come with the same call.

    The tools of an upstream are published one by one, in no order, so one of its own that is missing is a warning.
    """
    blocked, warned = list[Violation](), list[Violation]()
    for path, rule, tool in _references(manifest):
        if tool == manifest.name or tool in beside or await _exists(tool, catalogue):
            continue
        own = tool.namespace == manifest.name.namespace
        advice = "; register it first, or both in one call (`beside`, as tools register FOLDER does)" if own else ""
        findings = warned if own and imported else blocked
        findings.append(Violation(path, rule, f"{tool.qualified} is not registered{advice}"))
    return ReferenceFindings(tuple(blocked), tuple(warned))


def _references(manifest: Manifest) -> Iterator[tuple[str, str, ToolName]]:
    """Yield the path, the rule and the tool of each reference. The form of names is checked by other rules."""
    named = (
        ("manifest.compensation_tool", "compensation.exists", manifest.text("compensation_tool")),
        (
            "manifest.idempotency.status_tool",
            "idempotency.status_tool_exists",
            str(manifest.part("idempotency").get("status_tool", "")),
        ),
    )
    for path, rule, text in named:
        try:
            if text:
                yield path, rule, ToolName.parse(text)
        except MeshError:
            continue


async def _exists(tool: ToolName, catalogue: Catalogue) -> bool:
    return any(head.standing.state not in _GONE for head in await catalogue.heads([tool]))
