"""Semantic versioning rules: which bump a change needs and which releases it is compared with.

Releases form lines, the ranges of `^`: `1.x`, below 1.0.0 `0.2.x`, and each `0.0.z` alone. Callers get newer releases
of a line automatically, so nothing may break within a line. Pre-releases belong to no line, because only an exact
constraint selects one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum

from libs.common.semver import Version
from services.registry.domain.compatibility.differences import ChangeKind, Difference
from services.registry.domain.model import VersionHead


class Bump(IntEnum):
    """The part of a version number that has to grow, in increasing order."""

    NONE = 1
    PATCH = 2
    MINOR = 3
    MAJOR = 4


_NEEDED = {ChangeKind.NEUTRAL: Bump.PATCH, ChangeKind.ADDITIVE: Bump.MINOR, ChangeKind.BREAKING: Bump.MAJOR}


def smallest_bump(differences: Iterable[Difference]) -> Bump:
    """Return the smallest legal bump for these changes."""
    return max((_NEEDED[difference.kind] for difference in differences), default=Bump.NONE)


def bump_version(version: Version, bump: Bump) -> Version:
    """Return the lowest release above a version with such a bump. NONE counts as a patch."""
    major, minor, patch = version.core
    if bump is Bump.MAJOR:
        if major:
            return Version(major + 1, 0, 0)
        return Version(0, minor + 1, 0) if minor else Version(0, 0, patch + 1)
    if bump is Bump.MINOR and major:
        return Version(major, minor + 1, 0)
    return Version(major, minor, patch + 1)


def line_of(version: Version) -> tuple[int, ...]:
    """Return the line of a version."""
    if version.major:
        return (version.major,)
    return (0, version.minor) if version.minor else (0, 0, version.patch)


def allowed_bump(old: Version, new: Version) -> Bump:
    """Return the largest bump that the step between two version numbers allows."""
    if line_of(old) != line_of(new):
        return Bump.MAJOR
    if old.major and old.minor == new.minor:
        return Bump.PATCH
    return Bump.MINOR


def previous_release(version: Version, heads: Sequence[VersionHead]) -> VersionHead | None:
    """Return the release whose callers get this version next: the highest lower one of its line."""
    lower = [head for head in _line(version, heads) if head.version < version]
    return max(lower, key=lambda head: head.version, default=None)


def next_release(version: Version, heads: Sequence[VersionHead]) -> VersionHead | None:
    """Return the release that callers of this version get next: the lowest higher one of its line."""
    higher = [head for head in _line(version, heads) if version < head.version]
    return min(higher, key=lambda head: head.version, default=None)


def _line(version: Version, heads: Sequence[VersionHead]) -> list[VersionHead]:
    if version.prerelease:
        return []
    line = line_of(version)
    # In any state: a draft may be published and a disabled version enabled, and their callers then follow the line.
    return [head for head in heads if not head.version.prerelease and line_of(head.version) == line]
