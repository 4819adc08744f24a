"""Admission rules for fields that the mesh does not honour, and for entry points that no runner accepts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from libs.common.entry_points import parse_command, parse_function
from libs.common.errors import MeshError, Violation
from libs.common.json.jsonio import parse_object
from services.registry.domain.publishing.manifest import Manifest

# Fields that ask the mesh for something it does not do, with the values that ask for nothing. A tool that sets one
# would be trusted for a promise that the mesh does not keep.
UNHONOURED: Mapping[str, frozenset[str]] = {
    "input.argument_mode": frozenset({"object"}),
    "input.media_types": frozenset(),
    "output.media_types": frozenset(),
    "interface.safety.requires_user_interaction": frozenset(),
    "interface.safety.classifier_input": frozenset(),
    "interface.rendering.groupable": frozenset(),
    "permission.credential_propagation": frozenset({"none"}),
    "permission.credential_refs": frozenset(),
    "side_effects.scope": frozenset(),
    "observability.trace_propagation": frozenset(),
    "observability.metrics": frozenset(),
    "observability.cost_categories": frozenset(),
    "scheduling.interrupt": frozenset({"cancel"}),
    "scheduling.ordered_results": frozenset(),
    "scheduling.context_modifiers_allowed": frozenset(),
}
# Fields that describe a tool. They are stored, shown and digested; no decision depends on them.
DESCRIPTIVE = frozenset(
    {
        "kind",
        "protocol",
        "annotations",
        "output.error_schema",
        "permission.data_access",
        "external_mappings",
        "changelog",
        "documentation_url",
        "source_code_url",
        "license",
        "author",
        # Its signature is verified, but nothing trusts its key.
        "provenance",
        # Searches and trust measure by `latency_p95`.
        "sla.latency_p50",
        "sla.latency_p99",
        "sla.availability",
    }
)


def refuse_unhonoured(manifest: Manifest) -> Iterator[Violation]:
    """Refuse every field that nothing in the mesh acts on."""
    for field, harmless in UNHONOURED.items():
        for path, value in _values(manifest.document, "manifest", field.split(".")):
            if value not in harmless:
                allowed = f"; leave it out, or set it to {sorted(harmless)[0]}" if harmless else "; leave it out"
                yield Violation(path, "field.not_honoured", f"is not honoured by the mesh yet{allowed}")


def check_entry_point(manifest: Manifest) -> Iterator[Violation]:
    """Require an entry point that the runner accepts."""
    kind, text = manifest.execution.get("runner"), str(manifest.execution.get("entry_point", ""))
    path, rule = "manifest.execution.entry_point", "entry_point.form"
    if kind == "python" and parse_function(text) is None:
        yield Violation(path, rule, "is not pack/module:function")
    if kind == "command" and parse_command(text) is None:
        message = (
            "is not a JSON array of a program (/usr/bin/name, no shell, or pack:name/file) and its arguments,"
            " with placeholders only where no code is read"
        )
        yield Violation(path, rule, message)


def check_upstream_entry_point(manifest: Manifest) -> Iterator[Violation]:
    """Require a tool of an upstream to run at that of its own namespace, whose owner answers for its claims."""
    if manifest.execution.get("runner") not in ("mcp", "grpc", "websocket"):
        return
    path, text = "manifest.execution.entry_point", str(manifest.execution.get("entry_point", ""))
    try:
        fields = parse_object(text.encode())
    except MeshError:
        fields = {}
    if fields.keys() != {"upstream", "tool", "definition"} or fields["upstream"] != manifest.name.namespace:
        message = "does not name a tool of the upstream of this namespace; `toolmesh connect` registers such tools"
        yield Violation(path, "entry_point.upstream", message)


def _values(value: Any, path: str, steps: list[str]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list) and steps:
        for index, item in enumerate(value):
            yield from _values(item, f"{path}[{index}]", steps)
    elif not steps:
        yield path, value if isinstance(value, str) else ""
    elif isinstance(value, dict) and steps[0] in value:
        yield from _values(value[steps[0]], f"{path}.{steps[0]}", steps[1:])
