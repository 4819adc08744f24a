"""What is compiled, once per version, about how its arguments are taken in. Facts only; `inputs.py` acts on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from libs.common.errors import Violation

if TYPE_CHECKING:
    # A tool holds its intake, so that file knows this one and not the other way round.
    from services.executor.domain.model import Change

Rule = Callable[[dict[str, Any]], Iterable[Violation]]
"""Says what is wrong with arguments that keep their schema. Never repeats a value."""


class Coerced(NamedTuple):
    """Arguments read as their declared types; or, where something would be lost, what and where."""

    value: dict[str, Any]
    changes: tuple[Change, ...] = ()
    losses: tuple[Violation, ...] = ()


class InnerDefault(NamedTuple):
    """A default below the top level. It is filled in where the object that misses it is there."""

    parent: tuple[str, ...]
    name: str
    value: Any


class Fill(NamedTuple):
    """An argument that only the mesh may set, and what it sets it to: a fact about the call, else a fixed value."""

    name: str
    fact: str
    value: Any
    fixed: bool
    """True if there is a fixed value, which may be null."""


@dataclass(frozen=True, slots=True)
class Intake:
    """How the arguments of one version are taken in, beyond its schema."""

    coerce: Callable[[dict[str, Any]], Coerced] | None = None
    """Reads arguments as their declared types; None if nobody may change them."""
    whole: bool = False
    """True if the schema asks for integers, so that `42.0` may have to become `42`."""
    inner: tuple[InnerDefault, ...] = ()
    internal: tuple[tuple[str, ...], ...] = ()
    """Steps to what a caller may not send."""
    checks: tuple[Rule, ...] = ()
    """What must hold between values, and no schema can say."""
    policies: tuple[Rule, ...] = ()
    """What paths, URLs and commands among the arguments may be."""
    fills: tuple[Fill, ...] = ()
    call: Callable[[Any], Sequence[Violation]] | None = None
    """What breaks the schema of what the tool receives, where it has one of its own."""
