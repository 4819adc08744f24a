"""A hundred tools of many domains with queries."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from libs.common.semver import Version
from services.registry.domain.discovery.listing import IndexEntry, index_entry
from services.registry.domain.model import LifecycleState, Standing, ToolVersion, VersionHead
from services.registry.domain.publishing.manifest import Manifest

NOW = datetime(2026, 11, 1, tzinfo=UTC)
_FILE = Path(__file__).with_name("discovery_corpus.json")


def load() -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Return the tools, the paraphrased queries and the keyword queries."""
    corpus: Mapping[str, Sequence[Mapping[str, Any]]] = json.loads(_FILE.read_text())
    return corpus


def document(tool: Mapping[str, Any], version: str = "1.0.0") -> dict[str, Any]:
    """Return the manifest document of a tool of the corpus."""
    namespace, tool_id = tool["name"].split(".")
    properties = {name: {"type": "string", "description": text} for name, text in tool["properties"].items()}
    return {
        "schema_version": "0.2.0",
        "tool_id": tool_id,
        "namespace": namespace,
        "version": version,
        "title": tool["title"],
        "description": tool["description"],
        "search_hint": tool["search_hint"],
        "provider": namespace,
        "tags": list(tool["tags"]),
        "input": {"schema": {"type": "object", "properties": properties}},
        "output": {"schema": {"type": "object"}},
        "execution": {"runner": "remote", "timeout_class": tool.get("timeout_class", "standard")},
        "permission": {"required_scopes": tool.get("scopes", [])},
        "mutation_class": tool["mutation_class"],
        "capability_refs": tool.get("capabilities", []),
        **tool.get("document", {}),
    }


def version(
    tool: Mapping[str, Any],
    number: str = "1.0.0",
    state: LifecycleState = LifecycleState.AVAILABLE,
) -> ToolVersion:
    """Return a stored version of a tool of the corpus."""
    manifest = Manifest(document(tool, number))
    standing = Standing(state, NOW, 1)
    head = VersionHead(
        manifest.name, Version.parse(number), manifest.digest, len(manifest.payload), NOW, "did:web:x", standing
    )
    return ToolVersion(head, manifest)


def entry_of(*versions: ToolVersion) -> IndexEntry:
    """Return the index entry of a tool with these versions; the last one is the default."""
    return index_entry(versions[-1], [each.head for each in versions])
