"""Describes how the arguments of one tool version are prepared, beyond their schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from libs.common.errors import Violation

Rule = Callable[[dict[str, Any]], Iterable[Violation]]
"""Returns what is wrong with arguments that satisfy their schema. Never repeats a value."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change to the arguments between the caller and the tool."""

    path: str
    """The changed place, as a JSON Pointer."""
    source: str
    """The origin of the change: default, coercion, hook, permission or approver."""
    reason: str = ""
    """The rule, hook or approver."""


class CoercionResult(NamedTuple):
    """Arguments converted to their declared types, or what the conversion would lose."""

    value: dict[str, Any]
    changes: tuple[Change, ...] = ()
    losses: tuple[Violation, ...] = ()


class InnerDefault(NamedTuple):
    """A default below the top level. It is set where its parent object exists."""

    parent: tuple[str, ...]
    name: str
    value: Any


class Fill(NamedTuple):
    """An internal argument and its value: a fact about the call, else a fixed value."""

    name: str
    fact: str
    value: Any
    fixed: bool
    """True if there is a fixed value, which may be null."""


@dataclass(frozen=True, slots=True)
class ArgumentSpec:
    """How the arguments of one version are prepared, beyond its schema."""

    coerce: Callable[[dict[str, Any]], CoercionResult] | None = None
    """Converts arguments to their declared types; None if they must not be changed."""
    whole: bool = False
    """True if the schema has integers, so that `42.0` may have to become `42`."""
    inner: tuple[InnerDefault, ...] = ()
    internal: tuple[tuple[str, ...], ...] = ()
    """Paths of the arguments that a caller must not send."""
    checks: tuple[Rule, ...] = ()
    """Semantic checks that no schema can express."""
    policies: tuple[Rule, ...] = ()
    """Injection policies of paths, URLs and commands."""
    fills: tuple[Fill, ...] = ()
    call: Callable[[Any], Sequence[Violation]] | None = None
    """Validates the arguments that the tool receives, where they have a schema of their own."""
