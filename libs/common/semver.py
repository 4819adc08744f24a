"""Semantic versions (2.0.0) and the constraints that callers write over them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import total_ordering

from libs.common.errors import MeshError, Reason

_VERSION = re.compile(r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z.-]+))?(?:\+([0-9A-Za-z.-]+))?$")
_PARTIAL = re.compile(r"^(0|[1-9]\d*)(?:\.(0|[1-9]\d*|[xX*]))?(?:\.(0|[1-9]\d*|[xX*]))?$")
_COMPARISON = re.compile(r"^(>=|<=|>|<|=)(.+)$")
_HYPHEN = re.compile(r"^(\S+)\s+-\s+(\S+)$")
_MAX_DIGITS = 10


@total_ordering
@dataclass(frozen=True)
class Version:
    """One version; ordered as the specification orders them, build parts ignored."""

    major: int
    minor: int
    patch: int
    prerelease: tuple[str, ...] = ()
    build: str = ""

    @classmethod
    def parse(cls, text: str) -> Version:
        """Read `1.2.3-rc.1+build`; anything else raises INVALID_REQUEST."""
        match = _VERSION.match(text)
        if match is None or any(len(part) > _MAX_DIGITS for part in match.groups()[:3]):
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


@dataclass(frozen=True)
class Constraint:
    """What a caller accepts: exact, `latest`, `^1.2`, `~1.2`, `1.x`, comparisons such as `>=1.2 <2`, `1.2 - 1.4`, or any of
    several with `||` between them. A range never accepts a pre-release; who wants one names it exactly."""

    text: str
    accepts: Callable[[Version], bool]

    @classmethod
    def parse(cls, text: str) -> Constraint:
        """Read a constraint; empty and `*` mean `latest`. Nonsense raises INVALID_REQUEST."""
        text = text.strip()
        if text in ("", "latest", "*"):
            return cls("latest", lambda version: not version.prerelease)
        alternatives = [_alternative(part.strip()) for part in text.split("||")]
        return cls(text, lambda version: any(accepts(version) for accepts in alternatives))


def highest(versions: Iterable[Version], constraint: Constraint) -> Version | None:
    """Return the highest version that the constraint accepts, or None."""
    return max((v for v in versions if constraint.accepts(v)), default=None)


def _alternative(text: str) -> Callable[[Version], bool]:
    if _VERSION.match(text):
        exact = Version.parse(text)
        return lambda version: version == exact
    hyphen = _HYPHEN.match(text)
    terms = [f">={hyphen.group(1)}", f"<={hyphen.group(2)}"] if hyphen else text.split()
    if not terms:
        raise _no_constraint(text)
    tests = [_term(term) for term in terms]
    return lambda version: not version.prerelease and all(test(version) for test in tests)


def _term(term: str) -> Callable[[Version], bool]:
    comparison = _COMPARISON.match(term)
    if comparison:
        return _comparison(comparison.group(1), comparison.group(2))
    if term[0] == "^":
        low, given = _partial(term[1:])
        return _between(low, _caret_end(low, given))
    if term[0] == "~":
        low, given = _partial(term[1:])
        return _between(low, (low[0] + 1, 0, 0) if given == 1 else (low[0], low[1] + 1, 0))
    low, given = _partial(term)
    return _between(low, _wildcard_end(low, given))


def _comparison(sign: str, text: str) -> Callable[[Version], bool]:
    low, given = _partial(text)
    if sign == "=":
        return _between(low, _wildcard_end(low, given))
    end = _wildcard_end(low, given)
    tests: dict[str, Callable[[Version], bool]] = {
        ">=": lambda v: v.core >= low,
        "<": lambda v: v.core < low,
        # `>1.2` means above the whole of 1.2.x, and `<=1.2` up to its end.
        ">": lambda v: v.core >= end,
        "<=": lambda v: v.core < end,
    }
    return tests[sign]


def _between(low: tuple[int, int, int], end: tuple[int, int, int]) -> Callable[[Version], bool]:
    return lambda version: low <= version.core < end


def _caret_end(low: tuple[int, int, int], given: int) -> tuple[int, int, int]:
    if low[0] > 0 or given == 1:
        return (low[0] + 1, 0, 0)
    if low[1] > 0 or given == 2:
        return (0, low[1] + 1, 0)
    return (0, 0, low[2] + 1)


def _wildcard_end(low: tuple[int, int, int], given: int) -> tuple[int, int, int]:
    ends = {1: (low[0] + 1, 0, 0), 2: (low[0], low[1] + 1, 0), 3: (low[0], low[1], low[2] + 1)}
    return ends[given]


def _partial(text: str) -> tuple[tuple[int, int, int], int]:
    """Read `1`, `1.2`, `1.2.3` or `1.x`; return the lowest version meant and how many numbers were given."""
    match = _PARTIAL.match(text)
    if match is None or any(len(part) > _MAX_DIGITS for part in match.groups() if part):
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
