"""Semantic versions (2.0.0) and the constraints that callers write over them."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import total_ordering

from libs.common.errors import MeshError, Reason

# ASCII only, and no leading zeros: otherwise two texts would be the same version.
_NUMBER = r"(0|[1-9][0-9]*)"
_IDENTIFIER = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_PRERELEASE, _BUILD = rf"{_IDENTIFIER}(?:\.{_IDENTIFIER})*", r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_VERSION = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-({_PRERELEASE}))?(?:\+({_BUILD}))?")
_PARTIAL = re.compile(r"(0|[1-9][0-9]*)(?:\.(0|[1-9][0-9]*|[xX*]))?(?:\.(0|[1-9][0-9]*|[xX*]))?")
_COMPARISON = re.compile(r"(>=|<=|>|<|=)(.+)")
_HYPHEN = re.compile(r"(\S+)\s+-\s+(\S+)")
MAX_DIGITS = 10


@total_ordering
@dataclass(frozen=True)
class Version:
    """One version, ordered by the specification; builds are ignored."""

    major: int
    minor: int
    patch: int
    prerelease: tuple[str, ...] = ()
    build: str = ""

    @classmethod
    def parse(cls, text: str) -> Version:
        """Parse `1.2.3-rc.1+build`; anything else raises INVALID_REQUEST."""
        match = _VERSION.fullmatch(text)
        if match is None or any(len(part) > MAX_DIGITS for part in match.groups()[:3]):
            raise MeshError(Reason.INVALID_REQUEST, message="not a semantic version", metadata={"version": text[:128]})
        major, minor, patch, prerelease, build = match.groups()
        return cls(int(major), int(minor), int(patch), tuple(prerelease.split(".")) if prerelease else (), build or "")

    @property
    def core(self) -> tuple[int, int, int]:
        return (self.major, self.minor, self.patch)

    def __lt__(self, other: Version) -> bool:
        return self._rank() < other._rank()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._rank() == other._rank()

    def __hash__(self) -> int:
        return hash(self._rank())

    def __str__(self) -> str:
        tail = f"-{'.'.join(self.prerelease)}" if self.prerelease else ""
        return f"{self.major}.{self.minor}.{self.patch}{tail}" + (f"+{self.build}" if self.build else "")

    def _rank(self) -> tuple[tuple[int, int, int], int, tuple[tuple[int, int, str], ...]]:
        parts = tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in self.prerelease)
        return (self.core, 0 if self.prerelease else 1, parts)


Core = tuple[int, int, int]
Span = tuple[Core, Core | None]
"""A range of releases: from the first, below the second; None is unbounded."""
_ZERO: Core = (0, 0, 0)
_EVERY_RELEASE: Span = (_ZERO, None)


@dataclass(frozen=True)
class Constraint:
    """A version constraint: exact, `latest`, `^1.2`, `~1.2`, `1.x`, comparisons such as `>=1.2 <2`, `1.2 - 1.4`, or
    several separated by `||`.

    A range never accepts a pre-release; only its exact name does.
    """

    text: str
    releases: tuple[Span, ...]
    """The accepted ranges, in order, without adjacent ones."""
    prereleases: frozenset[Version] = frozenset()

    @classmethod
    def parse(cls, text: str) -> Constraint:
        """Parse a constraint; empty and `*` mean `latest`. Raises INVALID_REQUEST."""
        text = text.strip()
        if not text.isascii():
            raise _no_constraint(text)
        if text in ("", "latest", "*"):
            return cls("latest", (_EVERY_RELEASE,))
        return union([_alternative(part.strip()) for part in text.split("||")], text)

    def accepts(self, version: Version) -> bool:
        """Return whether the constraint accepts a version."""
        if version.prerelease:
            return version in self.prereleases
        core = version.core
        return any(low <= core and (end is None or core < end) for low, end in self.releases)

    def means(self, version: Version) -> bool:
        """Return whether a version is accepted and has the constraint's build, if that names one."""
        if "+" not in self.text:
            return self.accepts(version)
        parts = (part.strip().partition("+") for part in self.text.split("||"))
        return any(_alternative(rest).accepts(version) and build in ("", version.build) for rest, _, build in parts)

    def within(self, other: Constraint) -> bool:
        """Return whether the other constraint accepts everything that this one accepts."""
        return self.prereleases <= other.prereleases and all(other._holds(span) for span in self.releases)

    def _holds(self, span: Span) -> bool:
        """Return whether one range has all of a span. The ranges are in order, so only the last before it can."""
        place = bisect_right(self.releases, span[0], key=lambda release: release[0])
        return place > 0 and _ends_by(span[1], self.releases[place - 1][1])


def union(constraints: Iterable[Constraint], text: str = "") -> Constraint:
    """Return the union of constraints."""
    parts = list(constraints)
    spans: list[Span] = []
    for low, end in sorted((span for part in parts for span in part.releases), key=lambda span: span[0]):
        if spans and _ends_by(low, spans[-1][1]):
            last, reached = spans.pop()
            spans.append((last, reached if _ends_by(end, reached) else end))
        else:
            spans.append((low, end))
    prereleases = frozenset().union(*(part.prereleases for part in parts))
    return Constraint(text or " || ".join(part.text for part in parts), tuple(spans), prereleases)


def highest(versions: Iterable[Version], constraint: Constraint) -> Version | None:
    """Return the highest version that the constraint accepts, or None."""
    return max((v for v in versions if constraint.accepts(v)), default=None)


def _alternative(text: str) -> Constraint:
    if _VERSION.fullmatch(text):
        exact = Version.parse(text)
        if exact.prerelease:
            return Constraint(text, (), frozenset({exact}))
        return Constraint(text, ((exact.core, _next(exact.core)),))
    hyphen = _HYPHEN.fullmatch(text)
    terms = [f">={hyphen.group(1)}", f"<={hyphen.group(2)}"] if hyphen else text.split()
    if not terms:
        raise _no_constraint(text)
    low, end = _EVERY_RELEASE
    for term in terms:
        least, limit = _term(term)
        low, end = max(low, least), limit if _ends_by(limit, end) else end
    return Constraint(text, ((low, end),) if end is None or low < end else ())


def _term(term: str) -> Span:
    comparison = _COMPARISON.fullmatch(term)
    if comparison:
        return _comparison(comparison.group(1), comparison.group(2))
    if term[0] == "^":
        low, given = _partial(term[1:])
        return (low, _caret_end(low, given))
    if term[0] == "~":
        low, given = _partial(term[1:])
        return (low, (low[0] + 1, 0, 0) if given == 1 else (low[0], low[1] + 1, 0))
    low, given = _partial(term)
    return (low, _wildcard_end(low, given))


def _comparison(sign: str, text: str) -> Span:
    low, given = _partial(text)
    end = _wildcard_end(low, given)
    spans: dict[str, Span] = {
        "=": (low, end),
        ">=": (low, None),
        "<": (_ZERO, low),
        # `>1.2` means above the whole of 1.2.x, and `<=1.2` up to its end.
        ">": (end, None),
        "<=": (_ZERO, end),
    }
    return spans[sign]


def _ends_by(end: Core | None, limit: Core | None) -> bool:
    return limit is None or (end is not None and end <= limit)


def _next(core: Core) -> Core:
    return (core[0], core[1], core[2] + 1)


def _caret_end(low: Core, given: int) -> Core:
    if low[0] > 0 or given == 1:
        return (low[0] + 1, 0, 0)
    if low[1] > 0 or given == 2:
        return (0, low[1] + 1, 0)
    return (0, 0, low[2] + 1)


def _wildcard_end(low: Core, given: int) -> Core:
    ends = {1: (low[0] + 1, 0, 0), 2: (low[0], low[1] + 1, 0), 3: (low[0], low[1], low[2] + 1)}
    return ends[given]


def _partial(text: str) -> tuple[Core, int]:
    """Parse `1`, `1.2`, `1.2.3` or `1.x`; return the lowest version and the count of numbers."""
    match = _PARTIAL.fullmatch(text)
    if match is None or any(len(part) > MAX_DIGITS for part in match.groups() if part):
        raise _no_constraint(text)
    numbers: list[int] = []
    for part in match.groups():
        if part is None or part in "xX*":
            break
        numbers.append(int(part))
    padded = [*numbers, 0, 0, 0]
    return (padded[0], padded[1], padded[2]), len(numbers)


def _no_constraint(text: str) -> MeshError:
    return MeshError(Reason.INVALID_REQUEST, message="not a version constraint", metadata={"constraint": text[:128]})
