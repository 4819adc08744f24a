"""Tools of a pack, tried in a real sandbox: what holds, and every kind of defect with the arguments that show it."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from authoring.packs.check_pack import check_pack
from authoring.packs.trials.try_pack import TriedTool, try_pack
from services.executor.adapters.sandbox.bubblewrap.sandbox import BubblewrapSandbox

TOOLS = '''
import os
import time
from pathlib import Path
from typing import Literal, TypedDict

from toolmesh_tool import ToolFailure, tool


class Half(TypedDict):
    half: int


@tool(mutation_class="read_only", tier="process", examples=[({"number": 4}, {"half": 2})])
def halve(number: int) -> Half:
    """Halves an even number."""
    if number % 2:
        raise ToolFailure("the number is odd")
    return {"half": number // 2}


@tool(mutation_class="read_only", tier="process")
def divide(number: int) -> float:
    """Divides a hundred by a number."""
    return 100 / number


@tool(mutation_class="read_only", tier="process", examples=[({"number": 3}, {"result": 4})])
def wrong_example(number: int) -> int:
    """Returns the number."""
    return number


@tool(mutation_class="read_only", tier="process")
def wrong_result(text: str) -> Literal["yes", "no"]:
    """Answers yes or no."""
    return "maybe"


@tool(mutation_class="read_only", tier="process", timeout_class="interactive")
def hangs(text: str) -> str:
    """Never ends."""
    while True:
        time.sleep(1)


@tool(mutation_class="read_only", tier="process")
def crashes(text: str) -> str:
    """Ends its process."""
    os._exit(3)


@tool(
    mutation_class="write_reversible", compensation="tools/trials.undo", dry_run=True, tier="process", writes=["notes"],
    side_effects=[{"resource": "file:notes/declared.txt", "operation": "create"}],
    examples=[({"name": "declared.txt"}, {"result": "declared.txt"})],
)
def writes(name: Literal["declared.txt", "other.txt"]) -> str:
    """Writes a file."""
    Path("/volumes/notes", name).write_text("new")
    return name


@tool(mutation_class="read_only", tier="process", hosts=["api.example.com"])
def fetches(path: str) -> str:
    """Fetches a page."""
    return path
'''


@pytest.fixture(scope="module")
def pack() -> Iterator[Path]:
    if why := BubblewrapSandbox("test").unavailable_reason():
        pytest.skip(why)
    folder = Path(tempfile.mkdtemp(prefix="trials-"))
    (folder / "trials").mkdir()
    (folder / "trials" / "pack.json").write_text(json.dumps({"name": "trials"}))
    (folder / "trials" / "tools.py").write_text(TOOLS)
    yield folder / "trials"
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def tried(pack: Path) -> dict[str, TriedTool]:
    checked = check_pack(pack, require_built=False)
    assert checked.problems == []
    return {each.tool_id: each for each in try_pack(pack, checked, cases=12)}


def test_a_sound_tool_passes_and_may_refuse(tried: dict[str, TriedTool]) -> None:
    halve = tried["halve"]
    assert (halve.problems, halve.examples) == ([], 1)
    assert halve.cases >= 10
    assert 0 < halve.refused < halve.cases


def test_an_exception_is_reported_with_the_smallest_arguments_and_its_line(tried: dict[str, TriedTool]) -> None:
    [problem] = tried["divide"].problems
    assert '{"number": 0}' in problem
    assert "ZeroDivisionError" in problem


@pytest.mark.parametrize("tool_id", ["wrong_example", "wrong_result", "hangs", "crashes", "writes"])
def test_every_other_defect_is_found(tried: dict[str, TriedTool], tool_id: str) -> None:
    assert len(tried[tool_id].problems) == 1
    assert tried[tool_id].skipped == ""


def test_a_hanging_tool_is_not_called_again_and_again(tried: dict[str, TriedTool]) -> None:
    assert tried["hangs"].cases == 1


def test_the_undeclared_change_is_named(tried: dict[str, TriedTool]) -> None:
    [problem] = tried["writes"].problems
    assert "other.txt" in problem


def test_no_host_is_called_unasked(tried: dict[str, TriedTool]) -> None:
    assert tried["fetches"].skipped
    assert tried["fetches"].examples + tried["fetches"].cases == 0


def test_only_the_named_tools_are_tried(pack: Path) -> None:
    checked = check_pack(pack, require_built=False)
    assert [each.tool_id for each in try_pack(pack, checked, cases=0, tools=["halve"])] == ["halve"]
