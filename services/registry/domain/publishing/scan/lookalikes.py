"""Names that are read as, or mistyped for, the names of others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from libs.common.tool_names import ToolName
from services.registry.domain.publishing.manifest import Manifest
from services.registry.domain.publishing.scan.confusables import name_skeleton
from services.registry.domain.publishing.scan.policy import ScanClass

# Short names have too many neighbours for a neighbour to mean anything.
_SHORTEST_ID, _SHORTEST_NAMESPACE = 6, 5


@dataclass(frozen=True, slots=True)
class KnownName:
    """A name that is taken, and whose it is: by what a manifest says, and by who owns the namespace."""

    name: ToolName
    provider: str
    owner: str


@dataclass(frozen=True, slots=True)
class CandidateNames:
    """The names that a manifest would bring to its tool, and whose they would be."""

    tool: ToolName
    names: tuple[ToolName, ...]
    provider: str
    owner: str


@dataclass(frozen=True, slots=True)
class Resemblance:
    """A field of the manifest, what is wrong with it, and the name it resembles."""

    path: str
    kind: ScanClass
    other: str


def resemblances(manifest: Manifest, known: Iterable[KnownName], owner: str) -> Iterator[Resemblance]:
    """Yield what the manifest's names resemble. The same id in another namespace is no resemblance: that is what
    namespaces are for. A provider is only what a manifest says, so what another owns is foreign whoever is named."""
    own = {"manifest.tool_id": manifest.name.tool_id}
    own |= {f"manifest.aliases[{i}]": alias for i, alias in enumerate(manifest.items("aliases"))}
    namespace = manifest.name.namespace
    for each in known:
        foreign = each.provider != manifest.provider or each.owner != owner
        if foreign:
            yield from _compared("manifest.namespace", namespace, each.name.namespace, _SHORTEST_NAMESPACE)
        for path, tool_id in own.items():
            if foreign or each.name.namespace == namespace:
                yield from _compared(path, tool_id, each.name.tool_id, _SHORTEST_ID if foreign else 1 << 30)


def _compared(path: str, mine: str, theirs: str, shortest: int) -> Iterator[Resemblance]:
    if mine == theirs:
        return
    if name_skeleton(mine) == name_skeleton(theirs):
        yield Resemblance(path, ScanClass.HOMOGLYPH, theirs)
    elif min(len(mine), len(theirs)) >= shortest and is_one_edit_apart(mine, theirs) and not _numbered(mine, theirs):
        yield Resemblance(path, ScanClass.LOOKALIKE, theirs)


def is_one_edit_apart(a: str, b: str) -> bool:
    """True if one letter more, less, changed, or two neighbours swapped make one name of the other."""
    if a == b or abs(len(a) - len(b)) > 1:
        return False
    start = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    if len(a) == len(b):
        swapped = a[start : start + 2] == b[start : start + 2][::-1]
        return a[start + 1 :] == b[start + 1 :] or (swapped and a[start + 2 :] == b[start + 2 :])
    longer, shorter = (a, b) if len(a) > len(b) else (b, a)
    return longer[start + 1 :] == shorter[start:]


def _numbered(a: str, b: str) -> bool:
    """Names that differ in their numbers alone are a series."""
    return "".join(c for c in a if not c.isdigit()) == "".join(c for c in b if not c.isdigit())
