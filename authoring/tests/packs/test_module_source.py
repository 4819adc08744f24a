"""Lines and imports of a pack's module."""

from __future__ import annotations

from pathlib import Path

import pytest

from authoring.packs.module_source import ModuleSource

TEXT = '''import json, yaml
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import pandas
else:
    import numpy
try:
    import orjson
except ImportError:
    import simplejson
from . import sibling

@tool(
    mutation_class="read_only",
    examples=[],
)
def add(
    left: int,
    *,
    right: int,
) -> int:
    """Adds."""
    import requests
'''


@pytest.fixture
def source(tmp_path: Path) -> ModuleSource:
    (tmp_path / "m.py").write_text(TEXT)
    return ModuleSource(tmp_path / "m.py")


def test_imports_that_run_are_found(source: ModuleSource) -> None:
    assert list(source.imports()) == [
        ("json", 1),
        ("yaml", 1),
        ("typing", 2),
        ("numpy", 6),
        ("simplejson", 10),
        ("requests", 23),
    ]


def test_lines_of_parts_and_options(source: ModuleSource) -> None:
    assert source.line_of("add") == 13
    assert source.line_of_option("add", "examples") == 15
    assert source.line_of_option("add", "colour") == 13
    assert [source.line_of_part("add", part) for part in ("left", "right[].x", "return", "add")] == [18, 20, 21, 13]


@pytest.mark.parametrize(
    ("pointer", "line"),
    [
        ("/mutation_class", 14),
        ("/input/examples/0/arguments", 15),
        ("/input/schema/properties/right", 20),
        ("/output/schema", 21),
        ("/description", 22),
        ("/provider", 13),
    ],
)
def test_a_field_of_the_manifest_has_a_line(source: ModuleSource, pointer: str, line: int) -> None:
    assert source.line_of_field("add", pointer) == line


def test_names_that_do_not_exist_are_at_the_first_line(source: ModuleSource) -> None:
    assert source.line_of("other") == source.line_of_part("other", "x") == source.line_of_option("other", "x") == 1
