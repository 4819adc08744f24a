"""Packs are checked as a whole: code, imports, description and manifests, each problem at its line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from authoring.packs.check_pack import check_pack
from authoring.packs.init_pack import init_pack

EXAMPLES = Path(__file__).parents[3] / "examples" / "packs"
BY_HAND = {
    "namespace": "greeter",
    "tool_id": "by_hand",
    "description": "Greets by hand.",
    "mutation_class": "read_only",
    "execution": {"entry_point": "greeter/hands:wave"},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    init_pack(tmp_path / "greeter")
    return tmp_path / "greeter"


def places(folder: Path) -> list[str]:
    return [f"{problem.path.relative_to(folder)}:{problem.line}" for problem in check_pack(folder).problems]


def write_by_hand(folder: Path, **changes: object) -> None:
    (folder / "manifests" / "by_hand.json").write_text(json.dumps(BY_HAND | changes, indent=1))


@pytest.mark.parametrize("pack", sorted(path.parent.name for path in EXAMPLES.glob("*/pack.json")))
def test_the_examples_have_no_problem(pack: str) -> None:
    assert check_pack(EXAMPLES / pack).problems == []


def test_every_problem_comes_at_once(folder: Path) -> None:
    module = folder / "tools.py"
    module.write_text("import typer\n" + module.read_text().replace("name: str", "name"))
    (folder / "broken.py").write_text("x = 1\ndef (\n")
    (folder / "manifests" / "torn.json").write_text('{\n"a": }')
    write_by_hand(folder, tool_id="By-Hand")
    assert places(folder) == [
        "broken.py:2",
        "manifests/by_hand.json:3",
        "manifests/by_hand.json:7",
        "manifests/torn.json:2",
        "tools.py:1",
        "tools.py:6",
    ]


def test_a_package_of_the_author_is_no_package_of_the_sandbox(folder: Path) -> None:
    module = folder / "tools.py"
    module.write_text(module.read_text() + "\n    import typer\n")
    assert places(folder) == ["tools.py:13"]
    (folder / "lib" / "typer").mkdir(parents=True)
    (folder / "lib" / "typer" / "__init__.py").touch()
    (folder / "pack.json").write_text('{"name": "greeter", "lib": "lib"}')
    assert places(folder) == []


def test_a_manifest_that_is_not_what_the_function_says(folder: Path) -> None:
    module = folder / "tools.py"
    module.write_text(module.read_text().replace("Whom to greet", "Who is greeted"))
    assert places(folder) == ["manifests/greet.json:1"]
    assert check_pack(folder, require_built=False).problems == []


def test_a_manifest_by_hand_needs_its_code(folder: Path) -> None:
    write_by_hand(folder)
    assert places(folder) == ["manifests/by_hand.json:7"]
    (folder / "hands.py").write_text("def clap(arguments, call):\n    return {}\n")
    assert places(folder) == ["manifests/by_hand.json:7"]
    (folder / "hands.py").write_text("def wave(arguments, call):\n    return {}\n")
    assert places(folder) == []
    assert set(check_pack(folder).manifests) == {"greet", "by_hand"}


@pytest.mark.parametrize(
    "entry_point", ["greeter/tools:greet", "other/hands:wave", '["pack:greeter/bin/wave.py"]', "hands.wave"]
)
def test_an_entry_point_of_other_code_is_a_problem(folder: Path, entry_point: str) -> None:
    (folder / "hands.py").write_text("def wave(arguments, call):\n    return {}\n")
    write_by_hand(folder, execution={"entry_point": entry_point})
    assert set(places(folder)) == {"manifests/by_hand.json:7"}


def test_what_no_executor_loads_is_a_problem(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("")
    (folder / "link").symlink_to(tmp_path / "outside")
    assert places(folder) == ["pack.json:1"]
    (folder / "link").unlink()
    (folder / "pack.json").write_text('{"name": "greeter", "colour": 1}')
    assert places(folder) == ["pack.json:1"]
    (folder / "pack.json").write_text('{\n"name": }')
    assert "pack.json:2" in places(folder)
    shutil.rmtree(folder)
    assert check_pack(folder).problems


def test_secrets_are_references_and_declared_where_they_are_read(folder: Path) -> None:
    module = folder / "tools.py"
    text = (
        module.read_text().replace("import tool", "import Call, tool").replace("name: str)", "name: str, call: Call)")
    )
    secrets = 'secrets={"api_key": "sk-live-value"},\n    mutation_class'
    module.write_text(text.replace("mutation_class", secrets).replace('return f"', 'return call.secret("other") + f"'))
    problems = [problem for problem in check_pack(folder, require_built=False).problems if problem.path == module]
    assert [problem.line for problem in problems] == [4, 12]
    assert "toolmesh secrets set api_key --namespace greeter" in problems[0].message
    assert "sk-live-value" not in problems[0].message
    assert 'secrets={"other": "secret://other"}' in problems[1].message
    module.write_text(module.read_text().replace("sk-live-value", "secret://key").replace('("other")', '("api_key")'))
    assert check_pack(folder, require_built=False).problems == []
    module.write_text(module.read_text().replace('{"api_key": "secret://key"}', '["secret://key"]'))
    assert 4 in {problem.line for problem in check_pack(folder, require_built=False).problems}
