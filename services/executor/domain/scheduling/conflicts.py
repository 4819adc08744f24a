"""Computes what a call touches, and whether two calls conflict.

Resources are texts such as `order:42` or `file:data/report.txt`, and patterns of them, in which `*` matches anything. A
call writes what its tool's declared effects match, with `{argument}` filled in from its arguments, and reads what its
arguments name. Where this is unknown, a call is taken to touch more: two calls may then wait for each other without
need.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from libs.common.json.globs import ANY, matches
from libs.common.json.resource_pointers import UNKNOWN
from services.executor.domain.tool import Mutation, Tool

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
# `a/../b` and `a//b` are other spellings of an unknown resource.
_TWISTED = re.compile(r"(^|/)\.{1,2}(/|$)|//")
# Stands for a literal star in an argument. A resource with this character would at worst cause a needless wait.
_STAR_AS_LETTER = "\ue000"
_TENANT = "\ue001"
# More patterns than this are replaced by their common prefix, so that comparing two calls stays cheap.
MAX_PATTERNS = 8
_MAX_LENGTH = 512


@dataclass(frozen=True, slots=True)
class Footprint:
    """The resources that one call touches."""

    tool: str
    """The qualified name of the tool; its versions share a footprint."""
    alone: bool = False
    """True if no other call of the tool may overlap it, unless their `own` resources differ."""
    own: tuple[str, ...] = ()
    """The only resources that it accesses; empty if it may access others."""
    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()


def touches_nothing(tool: Tool) -> bool:
    """Return whether no call of the tool can conflict, whatever its arguments are."""
    return (
        tool.placement.concurrency_safe
        and not tool.effects
        and tool.resources is None
        and tool.mutation is Mutation.READ_ONLY
    )


def footprint_of(
    tool: Tool,
    arguments: dict[str, Any],
    tenant: str = "",
    shared: frozenset[str] = frozenset(),
    named: tuple[str, ...] | None = None,
) -> Footprint:
    """Return the footprint of a tenant's call with these arguments. `shared` names the volumes that all tenants see.

    `named` are the resources that the arguments name, where they are known already.
    """
    private = tuple(f"file:{volume}/" for volume in tool.confinement.reads if volume not in shared)
    if named is None:
        named = () if tool.resources is None else tool.resources(arguments)
    reads = _few(tuple(_scoped(_resource(each), private, tenant) for each in named))
    writes = _few(tuple(_scoped(_filled(effect.resource, arguments), private, tenant) for effect in tool.effects))
    if not writes and tool.mutation is not Mutation.READ_ONLY:
        # The tool changes something that it does not declare.
        writes = reads or (ANY,)
    alone = not tool.placement.concurrency_safe
    own = reads if alone and tool.closed_world and not _has_unknown(named) else ()
    return Footprint(tool.qualified, alone, own, writes, reads)


def conflicts(one: Footprint, other: Footprint) -> bool:
    """Return whether two calls must not overlap. Symmetric."""
    if one.tool == other.tool:
        if not one.alone and not other.alone:
            # The tool is concurrency-safe, except for two calls that change the very same resource.
            return _same(one.writes, other.writes) or _same(one.writes, other.reads) or _same(one.reads, other.writes)
        if not one.own or not other.own or _overlapping(one.own, other.own):
            return True
    return (
        _overlapping(one.writes, other.writes)
        or _overlapping(one.writes, other.reads)
        or _overlapping(one.reads, other.writes)
    )


def overlap(one: str, other: str) -> bool:
    """Return whether a text exists that both patterns match. Exact, and as fast as comparing their ends.

    With a star in both, a star of one can match everything between the first and last star of the other: only the parts
    before and after them can differ.
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
    # Fast path: mostly one of them is empty, and every new call is compared with every other.
    return bool(ones and others) and any(overlap(one, other) for one in ones for other in others)


def _same(ones: tuple[str, ...], others: tuple[str, ...]) -> bool:
    return any(one == other and ANY not in one for one in ones for other in others)


def _filled(pattern: str, arguments: dict[str, Any]) -> str:
    return _PLACEHOLDER.sub(lambda match: _value(arguments.get(match[1])), pattern)


def _scoped(pattern: str, private: tuple[str, ...], tenant: str) -> str:
    """Return a pattern of files in a tenant's folder, which matches no file of another tenant."""
    # At the end: a pattern that is not scoped, such as `file:*`, still overlaps those of every tenant.
    return f"{pattern}{_TENANT}{tenant}" if private and pattern.startswith(private) else pattern


def _value(value: Any) -> str:
    """Return an argument for a pattern; a wildcard if it is absent or not a scalar."""
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


def _has_unknown(named: tuple[str, ...]) -> bool:
    return any(each.startswith(f"{UNKNOWN}:") for each in named)


def _few(patterns: tuple[str, ...]) -> tuple[str, ...]:
    if len(patterns) <= MAX_PATTERNS:
        return patterns
    heads = [pattern.partition(ANY)[0] for pattern in patterns]
    first, last = min(heads), max(heads)
    shared = next((index for index, char in enumerate(first) if char != last[index : index + 1]), len(first))
    return (first[:shared] + ANY,)
