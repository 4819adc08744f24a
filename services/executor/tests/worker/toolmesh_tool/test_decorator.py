"""The `tool` decorator, in a process with the standard library alone: arguments become types, results become JSON."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CODE = Path(__file__).resolve().parents[3] / "worker"
BOOT = f"""
import sys
sys.path.append({str(CODE)!r})
from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypedDict
from toolmesh_tool import Call, tool

class Colour(Enum):
    RED = "red"

@dataclass
class Point:
    x: int
    y: float = 0.5

@dataclass
class Line:
    ends: list[Point]
    colour: Colour | None = None

class Options(TypedDict):
    deep: bool

call = Call({{"id": "1", "key": "", "preview": False, "seconds": 5}})
"""


def run(code: str) -> None:
    subprocess.run([sys.executable, "-I", "-S", "-B", "-c", BOOT + code], check=True)


def test_arguments_become_the_annotated_types() -> None:
    run("""
@tool
def draw(
    line: Line, by: dict[str, Point], options: Options, kind: Literal["a"], size: int, call: Call, top: int = 3
) -> None:
    assert line == Line([Point(1, 2.0)], Colour.RED)
    assert by == {"a": Point(3)} and options == {"deep": True} and kind == "a"
    assert (size, type(size), top) == (4, int, 3)
    assert call.invocation_id == "1"

line = {"ends": [{"x": 1, "y": 2}], "colour": "red"}
arguments = {"line": line, "by": {"a": {"x": 3}}, "options": {"deep": True}, "kind": "a", "size": 4.0}
assert draw(arguments, call) == {"result": None}
""")


def test_results_become_json() -> None:
    run("""
@tool
def point() -> Point: return Point(1)
@tool
def points() -> list[Point]: return [Point(1), Point(2)]
@tool
def line() -> Line: return Line([Point(1)], Colour.RED)
@tool
async def later() -> dict[str, int]: return {"a": 1}
@tool
def parts():
    yield 1

assert point({}, call) == {"x": 1, "y": 0.5}
assert points({}, call) == {"result": [{"x": 1, "y": 0.5}, {"x": 2, "y": 0.5}]}
assert line({}, call) == {"ends": [{"x": 1, "y": 0.5}], "colour": "red"}
assert later({}, call) == {"a": 1}
assert list(parts({}, call)) == [1]
""")


def test_an_unknown_option_is_refused() -> None:
    run("""
try:
    tool(colour="red")
except TypeError:
    sys.exit(0)
sys.exit(1)
""")


def test_the_decorator_loads_nothing_before_it_is_used() -> None:
    """A cold start stays as short as it is without it."""
    code = f"import sys; sys.path.append({str(CODE)!r}); import toolmesh_tool; sys.exit('typing' in sys.modules)"
    subprocess.run([sys.executable, "-I", "-S", "-B", "-c", code], check=True)


def test_generators_yield_json_also_asynchronous_ones() -> None:
    run("""
@tool
def points():
    yield Point(1)
    yield Point(2)

@tool
async def later():
    import asyncio
    for x in (1, 2):
        await asyncio.sleep(0)
        yield Point(x)

expected = [{"x": 1, "y": 0.5}, {"x": 2, "y": 0.5}]
assert list(points({}, call)) == list(later({}, call)) == expected
""")


def test_a_preview_gets_the_same_typed_arguments() -> None:
    run("""
from toolmesh_tool import previewed_by

def forecast(call: Call, point: Point) -> Point:
    return Point(point.x + 1)

@tool
@previewed_by(forecast)
def move(call: Call, point: Point) -> Point:
    return point

assert move({"point": {"x": 1}}, call) == {"x": 1, "y": 0.5}
assert move.preview({"point": {"x": 1}}, call) == {"x": 2, "y": 0.5}
""")


def test_limits_take_what_a_schema_has() -> None:
    run("""
from toolmesh_tool import Limits
assert Limits(ge=1, pattern="^a").limits == {"ge": 1, "pattern": "^a"}
try:
    Limits(colour="red")
except TypeError:
    sys.exit(0)
sys.exit(1)
""")
