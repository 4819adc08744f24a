"""Sixty signatures whose schema is derived, and those that are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired

from annotated_types import Ge, Gt, Le, Len, Lt, MaxLen, MinLen, MultipleOf
from pydantic import Field
from typing_extensions import TypedDict


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(Enum):
    LOW = 1
    HIGH = 2


@dataclass
class Point:
    x: int
    y: int = 0


@dataclass
class Line:
    start: Point
    end: Point
    tags: list[str] = field(default_factory=list)


class Options(TypedDict):
    deep: bool
    depth: NotRequired[int]


class Loose(TypedDict, total=False):
    a: str
    b: list[int]


ANNOTATIONS: list[Any] = [
    str,
    int,
    float,
    bool,
    None,
    Colour,
    Level,
    Point,
    Line,
    Options,
    Loose,
    Literal["a"],
    Literal["a", "b"],
    Literal[1, 2, 3],
    Literal["a", 1],
    list[str],
    list[int],
    list[float],
    list[bool],
    list[Point],
    list[Line],
    list[Options],
    list[list[str]],
    list[Colour],
    list[Literal["x", "y"]],
    dict[str, str],
    dict[str, int],
    dict[str, Point],
    dict[str, list[str]],
    dict[str, dict[str, int]],
    str | None,
    int | None,
    float | None,
    bool | None,
    Point | None,
    Line | None,
    Options | None,
    list[str] | None,
    dict[str, int] | None,
    Colour | None,
    Literal["a", "b"] | None,
    str | int,
    int | str | None,
    float | bool | None,
    list[str | None],
    list[str | int],
    Annotated[int, Ge(1)],
    Annotated[int, Gt(1), Lt(9)],
    Annotated[int, Ge(1), Le(9)],
    Annotated[int, MultipleOf(3)],
    Annotated[float, Ge(0.5)],
    Annotated[str, MinLen(1)],
    Annotated[str, MaxLen(8)],
    Annotated[str, Len(2, 4)],
    Annotated[str, Field(pattern="^[a-z]+$")],
    Annotated[str, Field(description="A name.")],
    Annotated[list[str], Len(1, 3)],
    Annotated[list[Point], MinLen(1)],
    Annotated[int, Field(ge=0, le=10)] | None,
    list[Annotated[int, Ge(0)]],
]


def taking(annotation: Any, *, optional: bool = False) -> Callable[..., Any]:
    """Return a function with a parameter of this type."""

    def function(value: Any, other: int = 3) -> None:
        """Takes a value."""

    function.__annotations__ = {"value": annotation, "other": int, "return": None}
    if optional:
        function.__defaults__ = (None, 3)
    return function


@dataclass
class Node:
    child: Node | None = None


@dataclass
class Opaque:
    anything: Any = None


class Plain:
    pass


REFUSED: list[tuple[Any, str]] = [
    (Any, "value"),
    (object, "value"),
    (dict, "value"),
    (list, "value"),
    (bytes, "value"),
    (complex, "value"),
    (Plain, "value"),
    (set[str], "value"),
    (tuple[int, str], "value"),
    (dict[int, str], "value"),
    (list[Any], "value[]"),
    (dict[str, Any], "value{}"),
    (Opaque, "value.anything"),
    (list[Opaque], "value[].anything"),
    (Node, "value"),
    (Point | Line, "value"),
    (Point | str, "value"),
    (list[str] | list[int], "value"),
    (Callable[[], None], "value"),
    (type, "value"),
]
