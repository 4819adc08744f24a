"""Tool packs: what is accepted, what is refused, and what a digest covers."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from services.executor.adapters.runners.packs import packs
from services.executor.adapters.runners.packs.packs import PackError, copy_pack
from services.executor.tests.packing import make_pack

FILES = {"words.py": "X = 1\n", "deep/er/__init__.py": "", "bin/run.py": "print()\n"}


def test_a_pack_is_copied_completely(tmp_path: Path) -> None:
    source = make_pack(tmp_path, "kit", {**FILES, "__pycache__/x.pyc": "?"}, programs=["bin/run.py"], lib="lib")
    pack = copy_pack(source, tmp_path / "copy")
    assert (pack.name, pack.programs, pack.lib) == ("kit", frozenset({"bin/run.py"}), "lib")
    assert pack.files == {*FILES, "pack.json"}
    assert pack.label.startswith("kit@sha256:")
    assert pack.has_module("words")
    assert pack.has_module("deep.er")
    assert not pack.has_module("deep")
    assert not pack.has_module("missing")


def test_later_changes_of_a_pack_have_no_effect(tmp_path: Path) -> None:
    source = make_pack(tmp_path, "kit", FILES)
    pack = copy_pack(source, tmp_path / "copy")
    (source / "words.py").write_text("X = 2\n")
    assert (pack.folder / "words.py").read_text() == "X = 1\n"


def test_the_copy_is_world_readable_and_owner_writable(tmp_path: Path) -> None:
    source = make_pack(tmp_path, "kit", FILES)
    (source / "words.py").chmod(0o600)
    (source / "bin" / "run.py").chmod(0o777)
    before = os.umask(0o077)
    try:
        pack = copy_pack(source, tmp_path / "copy")
    finally:
        os.umask(before)
    modes = {
        path: stat.S_IMODE((pack.folder / path).stat().st_mode) for path in ("words.py", "bin/run.py", "deep/er", "")
    }
    assert modes == {"words.py": 0o644, "bin/run.py": 0o755, "deep/er": 0o755, "": 0o755}


def test_the_digest_covers_names_contents_and_executable_bits(tmp_path: Path) -> None:
    def digest_of(nth: int, files: dict[str, str], *, program: bool = False) -> str:
        source = make_pack(tmp_path / str(nth), "kit", files)
        if program:
            (source / "words.py").chmod(0o755)
        return copy_pack(source, tmp_path / f"copy{nth}").digest

    same = [digest_of(1, FILES), digest_of(2, dict(reversed(FILES.items())))]
    others = [
        digest_of(3, {**FILES, "words.py": "X = 2\n"}),
        digest_of(4, {**FILES, "more.py": ""}),
        digest_of(5, FILES, program=True),
        digest_of(6, {"word.py": "X = 1\n", "deep/er/__init__.py": "", "bin/run.py": "print()\n"}),
    ]
    assert same[0] == same[1]
    assert len({same[0], *others}) == 5


@pytest.mark.parametrize(
    "described",
    [
        {"name": "../kit"},
        {"name": "Kit"},
        {"name": ""},
        {"name": 3},
        {"name": "json"},
        {"name": "toolmesh_tool"},
        {"programs": ["missing.py"]},
        {"programs": ["../../bin/sh"]},
        {"programs": "words.py"},
        {"lib": "../lib"},
        {"lib": "/usr/lib"},
        {"surprise": True},
    ],
)
def test_an_invalid_description_is_refused(tmp_path: Path, described: dict[str, object]) -> None:
    with pytest.raises(PackError):
        copy_pack(
            make_pack(tmp_path, "kit", FILES, **described)
            if "name" not in described
            else _renamed(tmp_path, described),
            tmp_path / "copy",
        )


def _renamed(tmp_path: Path, described: dict[str, object]) -> Path:
    import json

    source = make_pack(tmp_path, "kit", FILES)
    (source / "pack.json").write_text(json.dumps(described))
    return source


def test_a_description_that_is_not_json_is_refused(tmp_path: Path) -> None:
    source = make_pack(tmp_path, "kit", FILES)
    (source / "pack.json").write_text('{"name": "kit", "name": "kit"}')
    with pytest.raises(PackError):
        copy_pack(source, tmp_path / "copy")


def test_a_link_inside_a_pack_is_copied_as_a_file(tmp_path: Path) -> None:
    source = make_pack(tmp_path, "kit", FILES)
    (source / "alias.py").symlink_to("words.py")
    pack = copy_pack(source, tmp_path / "copy")
    assert (pack.folder / "alias.py").read_text() == "X = 1\n"
    assert not (pack.folder / "alias.py").is_symlink()


@pytest.mark.parametrize("target", ["/etc/hostname", "../other/secret.py", ".", "deep", "gone.py"])
def test_a_link_out_of_a_pack_is_refused(tmp_path: Path, target: str) -> None:
    source = make_pack(tmp_path, "kit", FILES)
    make_pack(tmp_path, "other", {"secret.py": "S = 1"})
    (source / "alias.py").symlink_to(target)
    with pytest.raises(PackError):
        copy_pack(source, tmp_path / "copy")


def test_special_files_are_refused(tmp_path: Path) -> None:
    source = make_pack(tmp_path, "kit", FILES)
    os.mkfifo(source / "pipe")
    with pytest.raises(PackError):
        copy_pack(source, tmp_path / "copy")


@pytest.mark.parametrize(("bound", "value"), [("MAX_BYTES", 8), ("MAX_FILES", 2)])
def test_size_and_files_of_a_pack_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, value: int
) -> None:
    monkeypatch.setattr(packs, bound, value)
    with pytest.raises(PackError):
        copy_pack(make_pack(tmp_path, "kit", FILES), tmp_path / "copy")
