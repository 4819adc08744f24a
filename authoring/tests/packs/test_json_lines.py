"""Lines of values in JSON texts."""

from __future__ import annotations

import pytest

from authoring.packs.json_lines import line_of_pointer

TEXT = """{
  "name": "kit",
  "list": [
    1,
    {"a/b": true, "text": "} \\" ],"},
    []
  ],
  "last": {
    "deep": null
  }
}
"""


@pytest.mark.parametrize(
    ("pointer", "line"),
    [
        ("", 1),
        ("/name", 2),
        ("/list", 3),
        ("/list/0", 4),
        ("/list/1/a~1b", 5),
        ("/list/2", 6),
        ("/last/deep", 9),
        ("/last/missing/deeper", 8),
        ("/nothing", 1),
    ],
)
def test_the_line_of_a_pointer(pointer: str, line: int) -> None:
    assert line_of_pointer(TEXT, pointer) == line


def test_text_that_is_no_json_has_a_first_line() -> None:
    assert line_of_pointer('}],"', "/a") == 1
