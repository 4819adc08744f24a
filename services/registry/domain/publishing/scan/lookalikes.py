"""Detects names that look like, or are a typo of, existing names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from libs.common.tool_names import ToolName
from services.registry.domain.publishing.manifest import Manifest
from services.registry.domain.publishing.scan.confusables import name_skeleton
from services.registry.domain.publishing.scan.policy import ScanClass
from services.registry.domain.trust.look_alikes import AlikePair

# Short names are often one edit apart by chance.
_SHORTEST_ID, _SHORTEST_NAMESPACE = 6, 5
_NAMESPACE = "manifest.namespace"


@dataclass(frozen=True, slots=True)
class KnownName:
    """An existing name with its provider and its owner."""

    name: ToolName
    provider: str
    owner: str
    tool: str = ""
    """The qualified name of the tool that an alias leads to; empty for the name of a tool."""


@dataclass(frozen=True, slots=True)
class CandidateNames:
    """The new names of a manifest with their provider and owner."""

    tool: ToolName
    names: tuple[ToolName, ...]
    provider: str
    owner: str


@dataclass(frozen=True, slots=True)
class Resemblance:
    """A manifest field, the kind of resemblance, and the existing name."""

    path: str
    kind: ScanClass
    other: str
    known: KnownName

    def pair(self, newer: ToolName) -> AlikePair:
        """Return the two namespaces, or the two tools, whose names are alike."""
        name = self.known.name
        if self.path == _NAMESPACE:
            return AlikePair(newer.namespace, name.namespace, self.kind)
        return AlikePair(newer.qualified, self.known.tool or name.qualified, self.kind)


def resemblances(manifest: Manifest, known: Iterable[KnownName], owner: str) -> Iterator[Resemblance]:
    """Yield the existing names that the manifest's names resemble. The same id in another namespace is allowed. Names
    of another owner are foreign even if the provider is the same, because the provider is only a claim."""
    own = {"manifest.tool_id": manifest.name.tool_id}
    own |= {f"manifest.aliases[{i}]": alias for i, alias in enumerate(manifest.items("aliases"))}
    namespace = manifest.name.namespace
    for existing in known:
        foreign = existing.provider != manifest.provider or existing.owner != owner
        if foreign:
            kind = _likeness(namespace, existing.name.namespace, _SHORTEST_NAMESPACE)
            if kind:
                yield Resemblance(_NAMESPACE, kind, existing.name.namespace, existing)
        for path, tool_id in own.items():
            if foreign or existing.name.namespace == namespace:
                kind = _likeness(tool_id, existing.name.tool_id, _SHORTEST_ID if foreign else 1 << 30)
                if kind:
                    yield Resemblance(path, kind, existing.name.tool_id, existing)


def _likeness(mine: str, theirs: str, shortest: int) -> ScanClass | None:
    if mine == theirs:
        return None
    if name_skeleton(mine) == name_skeleton(theirs):
        return ScanClass.HOMOGLYPH
    if min(len(mine), len(theirs)) >= shortest and is_one_edit_apart(mine, theirs) and not _numbered(mine, theirs):
        return ScanClass.LOOKALIKE
    return None


def is_one_edit_apart(a: str, b: str) -> bool:
    """Return whether one insertion, deletion, substitution or transposition turns one name into the other."""
    if a == b or abs(len(a) - len(b)) > 1:
        return False
    start = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    if len(a) == len(b):
        swapped = a[start : start + 2] == b[start : start + 2][::-1]
        return a[start + 1 :] == b[start + 1 :] or (swapped and a[start + 2 :] == b[start + 2 :])
    longer, shorter = (a, b) if len(a) > len(b) else (b, a)
    return longer[start + 1 :] == shorter[start:]


def _numbered(a: str, b: str) -> bool:
    """Return whether names differ only in their digits, as in a series."""
    return "".join(c for c in a if not c.isdigit()) == "".join(c for c in b if not c.isdigit())
