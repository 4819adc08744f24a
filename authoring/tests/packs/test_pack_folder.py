"""Packs are derived from their folder, with every problem at its file and line."""

from __future__ import annotations

import sys
from pathlib import Path

from authoring.packs.pack_folder import derive_pack

GOOD = '''
from toolmesh_tool import Call, tool

@tool(
    mutation_class="read_only",
    tier="process",
    hosts=["api.example.com"],
    reads=["reports"],
    timeout=2,
    scopes=["reports:read"],
    tags=["text"],
)
def read_report(name: str, call: Call) -> dict[str, str]:
    """Reads a report by its name."""
    return {"name": name}

@tool(
    name="drop_report",
    side_effects=[{"resource": "file:reports/*", "operation": "delete"}],
    writes=["reports"],
    dry_run=True,
    examples=[({"name": "old"},)],
    version="2.1.0",
)
def drop(name: str) -> None:
    """Removes a report for good."""
'''


def pack(tmp_path: Path, text: str, name: str = "mine") -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "pack.json").write_text(f'{{"name": "{name}"}}')
    (folder / "tools.py").write_text(text)
    return folder


def test_a_pack_yields_a_manifest_for_each_function(tmp_path: Path) -> None:
    derived = derive_pack(pack(tmp_path, GOOD))
    assert derived.problems == []
    read, drop = derived.manifests["read_report"], derived.manifests["drop_report"]
    assert read["execution"]["entry_point"] == "mine/tools:read_report"
    assert read["execution"]["network_policy"] == {"allowed_domains": ["api.example.com"]}
    assert read["execution"]["timeout_default"] == "2s"
    assert read["permission"] == {
        "required_scopes": ["reports:read"],
        "required_permissions": ["filesystem:read:reports"],
    }
    assert (drop["version"], drop["mutation_class"], drop["dry_run_supported"]) == ("2.1.0", "write_irreversible", True)
    assert drop["idempotency"]["mode"] == "key_required"
    assert drop["input"]["examples"] == [{"arguments": {"name": "old"}}]


def test_nothing_of_a_pack_stays_imported(tmp_path: Path) -> None:
    before = list(sys.path)
    derive_pack(pack(tmp_path, GOOD))
    assert sys.path == before
    assert not [name for name in sys.modules if name.split(".")[0] == "mine"]


def test_all_problems_come_at_once_with_file_and_line(tmp_path: Path) -> None:
    text = (
        "from toolmesh_tool import tool\n\n"
        '@tool\ndef first(value) -> None:\n    """Takes anything at all."""\n\n'
        '@tool(mutation_class="read_only")\ndef second(value: int) -> None:\n    pass\n\n'
        '@tool\ndef third(value: int) -> None:\n    """Writes, and does not say what."""\n'
    )
    folder = pack(tmp_path, text)
    places = [problem.place for problem in derive_pack(folder).problems]
    lines = {int(place.rpartition(":")[2]) for place in places}
    assert lines == {4, 7, 11}
    assert {place.rpartition(":")[0] for place in places} == {str(folder / "tools.py")}


def test_a_pack_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    assert derive_pack(tmp_path).problems
    assert derive_pack(pack(tmp_path, GOOD, name="yours")).problems


def test_code_that_fails_on_import_is_a_problem(tmp_path: Path) -> None:
    [problem] = derive_pack(pack(tmp_path, "x = 1\nimport nothing_of_that_name")).problems
    assert problem.place.endswith("tools.py:2")


def test_a_failed_import_is_at_the_line_of_the_pack_that_failed(tmp_path: Path) -> None:
    folder = pack(tmp_path, "from mine import other\n")
    (folder / "other.py").write_text("\n\nraise SystemExit(3)\n")
    assert {problem.place.rpartition("/")[2] for problem in derive_pack(folder).problems} == {"other.py:3"}


def test_a_second_save_in_the_same_second_is_read(tmp_path: Path) -> None:
    folder = pack(tmp_path, GOOD)
    derive_pack(folder)
    (folder / "tools.py").write_text(GOOD.replace('"2.1.0"', '"2.2.0"'))
    assert derive_pack(folder).manifests["drop_report"]["version"] == "2.2.0"
    assert not (folder / "__pycache__").exists()


def test_an_unknown_option_is_a_problem(tmp_path: Path) -> None:
    text = (
        "from toolmesh_tool import tool\n@tool(mutation_class='read_only',\n  colour='red')\ndef paint() -> None:\n"
        "    'Paints a wall red.'\n\n@tool\ndef other(value) -> None:\n    'Takes anything.'\n"
    )
    assert [problem.line for problem in derive_pack(pack(tmp_path, text)).problems] == [3, 8]


def test_a_pack_without_tools_is_a_problem(tmp_path: Path) -> None:
    assert derive_pack(pack(tmp_path, "x = 1\n")).problems
