"""What a call touches, and whether two calls get into each other's way.

Resources are texts such as `order:42` or `file:data/report.txt`, and patterns of them, in which `*` stands for anything. A call
changes what its tool's declared effects match, with `{argument}` filled in from its arguments, and reads what its arguments name.
Whatever cannot be told is taken to touch more rather than less: two calls then wait for each other without need, which is harmless.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from libs.common.json.globs import ANY, matches
from libs.common.json.resource_pointers import UNKNOWN
from services.executor.domain.tool import Mutation, Tool

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
# `a/../b` and `a//b` are other spellings of something else; nobody here knows of what.
_TWISTED = re.compile(r"(^|/)\.{1,2}(/|$)|//")
# A star that an argument holds is a letter. No resource has this character, and if one did, the two would only wait for each other.
_STAR_AS_LETTER = "\ue000"
# Beyond this, patterns are seen as everything that begins like all of them, so that comparing two calls stays cheap.
MAX_PATTERNS = 8
_MAX_LENGTH = 512


@dataclass(frozen=True, slots=True)
class Footprint:
    """What one call touches."""

    tool: str
    """The tool's qualified name: its versions share what they touch."""
    alone: bool = False
    """True if no other call of the tool may overlap it, unless both keep to resources of their own."""
    own: tuple[str, ...] = ()
    """The resources it keeps to; empty if it may reach beyond those that its arguments name."""
    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()


def touches_nothing(tool: Tool) -> bool:
    """Say whether no call of the tool can be in another's way, whatever its arguments are."""
    return (
        tool.placement.concurrency_safe
        and not tool.effects
        and tool.resources is None
        and tool.mutation is Mutation.READ_ONLY
    )


def footprint_of(tool: Tool, arguments: dict[str, Any]) -> Footprint:
    """Return what a call with these arguments touches."""
    named = () if tool.resources is None else tool.resources(arguments)
    reads = _few(tuple(_resource(each) for each in named))
    writes = _few(tuple(_filled(effect.resource, arguments) for effect in tool.effects))
    if not writes and tool.mutation is not Mutation.READ_ONLY:
        # It changes something and does not say what.
        writes = reads or (ANY,)
    alone = not tool.placement.concurrency_safe
    own = reads if alone and tool.closed_world and not _untold(named) else ()
    return Footprint(tool.qualified, alone, own, writes, reads)


def conflicts(one: Footprint, other: Footprint) -> bool:
    """Say whether two calls must not overlap. It is the same whichever is asked first."""
    if one.tool == other.tool:
        if not one.alone and not other.alone:
            # The tool vouches for its own calls, but not for two that change the very same thing.
            return _same(one.writes, other.writes) or _same(one.writes, other.reads) or _same(one.reads, other.writes)
        if not one.own or not other.own or _overlapping(one.own, other.own):
            return True
    return (
        _overlapping(one.writes, other.writes)
        or _overlapping(one.writes, other.reads)
        or _overlapping(one.reads, other.writes)
    )


def overlap(one: str, other: str) -> bool:
    """Say whether there is a text that both patterns match. Exact, and as quick as comparing their ends.

    With a star in both, whatever lies between the first and the last star of one can be taken by a star of the other: only what comes
    before and after them can disagree.
    """
    if ANY not in one:
        return one == other if ANY not in other else matches(other, one)
    if ANY not in other:
        return matches(one, other)
    head, other_head = one[: one.index(ANY)], other[: other.index(ANY)]
    tail, other_tail = one[one.rindex(ANY) + 1 :], other[other.rindex(ANY) + 1 :]
    heads_agree = head.startswith(other_head) or other_head.startswith(head)
    return heads_agree and (tail.endswith(other_tail) or other_tail.endswith(tail))


def _overlapping(ones: tuple[str, ...], others: tuple[str, ...]) -> bool:
    # Mostly one of them is empty, and every call that comes is held against every other.
    return bool(ones and others) and any(overlap(one, other) for one in ones for other in others)


def _same(ones: tuple[str, ...], others: tuple[str, ...]) -> bool:
    return any(one == other and ANY not in one for one in ones for other in others)


def _filled(pattern: str, arguments: dict[str, Any]) -> str:
    return _PLACEHOLDER.sub(lambda found: _value(arguments.get(found[1])), pattern)


def _value(value: Any) -> str:
    """An argument within a pattern; anything, if it is not there or no plain value."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ANY
    return _plain(str(value))


def _resource(resource: str) -> str:
    kind, _, value = resource.partition(":")
    return f"{kind}:{_plain(value)}"


def _plain(text: str) -> str:
    if _TWISTED.search(text):
        return ANY
    if len(text) > _MAX_LENGTH:
        text = text[:_MAX_LENGTH]
        return text.replace(ANY, _STAR_AS_LETTER) + ANY
    return text.replace(ANY, _STAR_AS_LETTER)


def _untold(named: tuple[str, ...]) -> bool:
    return any(each.startswith(f"{UNKNOWN}:") for each in named)


def _few(patterns: tuple[str, ...]) -> tuple[str, ...]:
    if len(patterns) <= MAX_PATTERNS:
        return patterns
    heads = [pattern.partition(ANY)[0] for pattern in patterns]
    first, last = min(heads), max(heads)
    shared = next((place for place, letter in enumerate(first) if letter != last[place : place + 1]), len(first))
    return (first[:shared] + ANY,)
