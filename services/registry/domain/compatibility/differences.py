"""Describes the differences between two contracts and their effect on callers of the older one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from libs.common.json.json_pointer import pointer_of
from services.registry.domain.compatibility.proof.unproven_keyword import UnprovenKeyword

# Keywords that the prover cannot compare with a different value, so that unproven does not mean incompatible.
_UNDECIDED = frozenset(
    {
        "pattern", "format", "not", "oneOf", "anyOf", "if", "value", "contains", "maxContains", "propertyNames",
        "unevaluatedItems", "$dynamicRef", "$ref", "dependencies", "patternProperties",
    }
)  # fmt: skip
UNPROVEN = "cannot be proven compatible"


class ChangeKind(StrEnum):
    """The effect of a change on callers of the previous version."""

    BREAKING = "breaking"
    ADDITIVE = "additive"
    NEUTRAL = "neutral"


@dataclass(frozen=True, slots=True)
class Difference:
    """One change: the manifest path, the keyword or field, its effect, and a message."""

    path: str
    rule: str
    kind: ChangeKind
    message: str


class Side(StrEnum):
    """The direction of the documents: callers write the input and read the output."""

    INPUT = "input"
    OUTPUT = "output"


def describe_breaking(side: Side, path: str, gap: UnprovenKeyword) -> Difference:
    """Describe why the new contract accepts fewer inputs, or allows other results, than the old one."""
    if side is Side.INPUT:
        words = {
            "required": f"{_quoted(gap.name)} is required now",
            "gone": f"{_quoted(gap.name)} is no longer accepted",
            "type": "a type is no longer accepted",
            "enum": "a value is no longer accepted",
        }.get(gap.keyword, f"{gap.keyword} accepts less than before")
    else:
        words = {
            "required": f"{_quoted(gap.name)} is no longer promised",
            "gone": f"{_quoted(gap.name)} may be returned now",
            "type": "a new type may be returned",
            "enum": "a new value may be returned",
        }.get(gap.keyword, f"{gap.keyword} promises less than before")
    if gap.keyword in _UNDECIDED:
        words = f"{words}, or at least {UNPROVEN}"
    return Difference(_location(path, gap), gap.keyword, ChangeKind.BREAKING, words)


def describe_additive(side: Side, path: str, gap: UnprovenKeyword) -> Difference:
    """Describe what the new contract accepts or promises beyond the old one."""
    if side is Side.INPUT:
        words = {
            "required": f"{_quoted(gap.name)} is optional now",
            "gone": f"{_quoted(gap.name)} is accepted now",
        }.get(gap.keyword, f"{gap.keyword} accepts more than before")
    else:
        words = {
            "required": f"{_quoted(gap.name)} is promised now",
            "gone": f"{_quoted(gap.name)} is no longer returned",
        }.get(gap.keyword, f"{gap.keyword} promises more than before")
    return Difference(_location(path, gap), gap.keyword, ChangeKind.ADDITIVE, words)


def _location(path: str, gap: UnprovenKeyword) -> str:
    pointer = gap.pointer + pointer_of([gap.name]) if gap.keyword == "gone" else gap.pointer
    return f"{path}#{pointer}" if pointer else path


def _quoted(name: str) -> str:
    return f"`{ascii(name)[1:-1][:64]}`"
