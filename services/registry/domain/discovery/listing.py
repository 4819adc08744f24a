"""Builds the index entry of a tool from its versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from services.registry.domain.catalog.resolve import latest
from services.registry.domain.discovery.results import Listing
from services.registry.domain.discovery.text import summary, weighted_terms
from services.registry.domain.model import ToolVersion, VersionHead
from services.registry.domain.publishing.manifest import Manifest, seconds
from services.registry.domain.runners.need import need_of

# Seconds of each timeout class, for manifests without a timeout of their own.
_CLASS_LIMITS = {"interactive": 0.5, "standard": 5.0, "long_running": 300.0, "async": 7200.0}


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A listing and its search terms."""

    listing: Listing
    counted: dict[str, float]
    length: int
    tags: tuple[str, ...]
    capabilities: tuple[str, ...]
    """Every capability and its parents: `data.query.sql`, `data.query`, `data`."""
    latency: float
    """The declared time limit of a call, in seconds."""


def listed_version(heads: Sequence[VersionHead], now: datetime) -> VersionHead:
    """Return the version that represents a tool in discovery: `latest`, else the highest."""
    return latest(heads, now) or max(heads, key=lambda head: head.version)


def index_entry(default_version: ToolVersion, heads: Sequence[VersionHead]) -> IndexEntry:
    """Return the index entry of a tool, given its default version and all its versions."""
    manifest = default_version.manifest
    if manifest is None:
        raise ValueError("a tool is listed with its manifest")
    aliases = (
        default_version.aliases
        if default_version.aliases is not None
        else tuple(alias.tool_id for alias in manifest.aliases)
    )
    counted, length = weighted_terms(manifest, aliases)
    references = tuple(manifest.items("capability_refs"))
    return IndexEntry(
        listing=_listing(manifest, default_version.head, heads),
        counted=counted,
        length=length,
        tags=tuple(tag.lower() for tag in manifest.tags),
        capabilities=tuple(dict.fromkeys(above for reference in references for above in _lineage(reference))),
        latency=_promised(manifest),
    )


def _listing(manifest: Manifest, default_version: VersionHead, heads: Sequence[VersionHead]) -> Listing:
    availability = manifest.part("interface").get("availability", {})
    return Listing(
        name=manifest.name,
        title=manifest.title,
        summary=summary(manifest),
        search_hint=manifest.text("search_hint"),
        provider=manifest.provider,
        category=_category(manifest),
        mutation_class=manifest.mutation_class,
        required_scopes=frozenset(manifest.part("permission").get("required_scopes", ())),
        feature_gates=tuple(availability.get("feature_gates", ())),
        credentials=tuple(availability.get("required_credentials", ())),
        model_support=tuple(availability.get("model_support", ())),
        need=need_of(manifest),
        heads=tuple(sorted(heads, key=lambda head: head.version)),
        default_version=default_version,
    )


def _category(manifest: Manifest) -> str:
    """Return the top of the first capability, else the first tag, else the namespace."""
    references = manifest.items("capability_refs")
    if references:
        return str(references[0]).split(".", 1)[0].lower()
    return manifest.tags[0].lower() if manifest.tags else manifest.name.namespace


def _lineage(reference: str) -> list[str]:
    parts = reference.lower().split(".")
    return [".".join(parts[:depth]) for depth in range(len(parts), 0, -1)]


def _promised(manifest: Manifest) -> float:
    """Return the time that the author promises for 95 of 100 calls, else the one after which a call is ended."""
    execution = manifest.execution
    if "latency_p95" in manifest.part("sla"):
        return float(seconds(manifest.part("sla")["latency_p95"]))
    if "timeout_default" in execution:
        return float(seconds(execution["timeout_default"]))
    return _CLASS_LIMITS.get(str(execution.get("timeout_class", "")), _CLASS_LIMITS["async"])
