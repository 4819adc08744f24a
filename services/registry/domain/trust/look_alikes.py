"""Names of other owners that are easily taken for a tool's. Both sides of a pair are shown each other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from libs.common.tool_names import ToolName

# More are no help to a reader, and a hostile crowd of names must not crowd out the rest of an answer.
MOST_SHOWN = 8


@dataclass(frozen=True, slots=True)
class AlikePair:
    """Two names that are alike: qualified names of tools, or namespaces."""

    newer: str
    older: str
    kind: str
    """homoglyph or lookalike"""


@dataclass(frozen=True, slots=True)
class LookAlike:
    """The other name of a pair, as a resource name."""

    name: str
    kind: str
    older: bool
    """True if the other name was registered first."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The owner of a namespace, and the provider that its tools claim."""

    provider: str
    owner: str


def shown_pairs(
    pairs: Iterable[AlikePair], holders: Mapping[str, Holder], revoked: Collection[str]
) -> Mapping[str, Sequence[LookAlike]]:
    """Return what is shown for each name, the older names first. A pair is shown while its names have different
    holders and neither tool is revoked."""
    shown: dict[str, list[LookAlike]] = {}
    for pair in pairs:
        holder_of_newer, holder_of_older = (holders.get(_namespace(name)) for name in (pair.newer, pair.older))
        if holder_of_newer == holder_of_older or pair.newer in revoked or pair.older in revoked:
            continue
        shown.setdefault(pair.newer, []).append(LookAlike(_resource(pair.older), pair.kind, True))
        shown.setdefault(pair.older, []).append(LookAlike(_resource(pair.newer), pair.kind, False))
    return shown


def look_alikes_of(tool: ToolName, shown: Mapping[str, Sequence[LookAlike]]) -> tuple[LookAlike, ...]:
    """Return what is shown for a tool: for its name and for its namespace, the older names first."""
    found = [*shown.get(tool.qualified, ()), *shown.get(tool.namespace, ())]
    return tuple(sorted(found, key=lambda alike: not alike.older)[:MOST_SHOWN]) if found else ()


def _namespace(name: str) -> str:
    return name.partition(".")[0]


def _resource(name: str) -> str:
    return f"tools/{name}" if "." in name else f"namespaces/{name}"
