"""Admission rules for access and reserved runners."""

from __future__ import annotations

from collections.abc import Iterator

from libs.common.errors import Violation
from libs.common.tool_names import DEFAULT_NAMESPACE
from services.registry.domain.publishing.manifest import Manifest


def require_scopes(manifest: Manifest) -> Iterator[Violation]:
    """Require a scope: without one, any token could call the tool."""
    if not manifest.part("permission").get("required_scopes"):
        yield Violation(
            "manifest.permission.required_scopes", "authorization.scope", "names no scope that a caller must hold"
        )


def reserve_builtin_code(manifest: Manifest) -> Iterator[Violation]:
    """Reserve built-in code for the core namespace: elsewhere it could be registered with false claims about its
    effects."""
    if manifest.name.namespace == DEFAULT_NAMESPACE:
        return
    if manifest.execution.get("runner") == "builtin":
        yield Violation("manifest.execution.runner", "runner.reserved", "is only for tools that ship with the mesh")
    if manifest.safety.get("sandbox_tier") == "in_process":
        yield Violation(
            "manifest.interface.safety.sandbox_tier", "sandbox.reserved", "is only for tools that ship with the mesh"
        )
