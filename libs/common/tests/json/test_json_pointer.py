"""JSON Pointers: what a step means, and every place that a pointer leads to."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.json.json_pointer import places, pointer_of, steps_of

VALUE = {"a": [{"b": 1}, {"b": 2}, {"c": 3}], "x/y": {"~": 4}, "*": {"b": 5}, "": 6}


@pytest.mark.parametrize(
    ("pointer", "found"),
    [
        ("", [("", VALUE)]),
        ("/a/0/b", [("/a/0/b", 1)]),
        ("/a/*/b", [("/a/0/b", 1), ("/a/1/b", 2)]),
        ("/x~1y/~0", [("/x~1y/~0", 4)]),
        ("/", [("/", 6)]),
        ("/*/b", [("/*/b", 5)]),
        ("/a/3", []),
        ("/a/-1", []),
        ("/a/b", []),
        ("/a/0/b/c", []),
        ("/a/٣", []),
    ],
)
def test_every_place_is_found_under_its_own_pointer(pointer: str, found: list[tuple[str, Any]]) -> None:
    assert list(places(VALUE, steps_of(pointer))) == found


def test_a_pointer_is_the_sum_of_its_steps() -> None:
    assert pointer_of(["a/b", 0, "~"]) == "/a~1b/0/~0"
    assert steps_of(pointer_of(["a/b", "0", "~1"])) == ("a/b", "0", "~1")
