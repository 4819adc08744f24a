"""The catalog of packs: what is loaded after each change of the folders."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from libs.common.telemetry.log import Log
from services.executor.adapters.runners.packs.catalog import PackCatalog
from services.executor.tests.packing import make_pack

FILES = {"m.py": "x = 1\n"}


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def open_catalog(tmp_path: Path, log_file: Path) -> Iterator[Callable[..., PackCatalog]]:
    """Open a catalog of the folders `a` and `b`. `amid` runs while it waits for files to rest."""
    descriptor = os.open(log_file, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir(exist_ok=True)

    def start(amid: Callable[[], object] = lambda: None) -> PackCatalog:
        catalog = PackCatalog(
            folders, tmp_path / "copies", Log("executor", descriptor=descriptor), sleep=lambda _: amid()
        )
        catalog.refresh()
        return catalog

    yield start
    os.close(descriptor)


def errors(log: Path) -> list[str]:
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [line["event"] for line in lines if line["level"] == "error"]


def copies(tmp_path: Path) -> set[str]:
    return {path.name for path in (tmp_path / "copies").iterdir()}


def test_packs_are_added_changed_and_removed(tmp_path: Path, open_catalog: Callable[..., PackCatalog]) -> None:
    catalog = open_catalog()
    assert dict(catalog.packs) == {}
    pack = make_pack(tmp_path / "b", "kit", FILES)
    assert catalog.refresh()
    first = catalog.packs["kit"]
    assert not catalog.refresh()
    (pack / "m.py").write_text("x = 2\n")
    assert catalog.refresh()
    second = catalog.packs["kit"]
    assert (second.folder / "m.py").read_text() == "x = 2\n"
    # What runs on the first one still reads its own files.
    assert (first.folder / "m.py").read_text() == "x = 1\n"
    shutil.rmtree(pack)
    assert catalog.refresh()
    assert dict(catalog.packs) == {}


def test_a_description_that_is_gone_removes_the_pack(tmp_path: Path, open_catalog: Callable[..., PackCatalog]) -> None:
    pack = make_pack(tmp_path / "a", "kit", FILES)
    catalog = open_catalog()
    (pack / "pack.json").unlink()
    assert catalog.refresh()
    assert not catalog.packs


def test_a_copy_goes_with_the_last_reference(tmp_path: Path, open_catalog: Callable[..., PackCatalog]) -> None:
    pack = make_pack(tmp_path / "a", "kit", FILES)
    catalog = open_catalog()
    held = catalog.packs["kit"]
    for number in range(5):
        (pack / "m.py").write_text(f"x = '{number}'\n")
        assert catalog.refresh()
    catalog.refresh()
    assert copies(tmp_path) == {held.folder.name, catalog.packs["kit"].folder.name}
    del held
    catalog.refresh()
    assert copies(tmp_path) == {catalog.packs["kit"].folder.name}


def test_other_times_of_the_same_files_change_nothing(tmp_path: Path, open_catalog: Callable[..., PackCatalog]) -> None:
    pack = make_pack(tmp_path / "a", "kit", FILES)
    catalog = open_catalog()
    before = catalog.packs["kit"]
    os.utime(pack / "m.py", (1, 1))
    assert not catalog.refresh()
    assert catalog.packs["kit"] is before


def test_a_pack_that_is_written_to_is_loaded_when_it_rests(
    tmp_path: Path, open_catalog: Callable[..., PackCatalog]
) -> None:
    pack = make_pack(tmp_path / "a", "kit", FILES)
    writes = iter(["x = 'three'\n", "x = 'number four'\n"])

    def write_more() -> None:
        if text := next(writes, ""):
            (pack / "m.py").write_text(text)

    catalog = open_catalog(write_more)
    (pack / "m.py").write_text("x = 'two'\n")
    assert not catalog.refresh()
    assert not catalog.refresh()
    assert (catalog.packs["kit"].folder / "m.py").read_text() == "x = 1\n"
    assert catalog.refresh()
    assert (catalog.packs["kit"].folder / "m.py").read_text() == "x = 'number four'\n"


def test_an_invalid_change_leaves_what_was_loaded(
    tmp_path: Path, open_catalog: Callable[..., PackCatalog], log_file: Path
) -> None:
    pack = make_pack(tmp_path / "a", "kit", FILES)
    make_pack(tmp_path / "a", "other", FILES)
    catalog = open_catalog()
    before = catalog.packs["kit"]
    (pack / "pack.json").write_text('{"name": "kit", "colour": 1}')
    assert not catalog.refresh()
    assert not catalog.refresh()
    assert catalog.packs["kit"] is before
    assert errors(log_file) == ["tool pack is invalid"]
    (pack / "pack.json").write_text('{"name": "kit", "description": "Better."}')
    assert catalog.refresh()
    assert catalog.packs["kit"] is not before


def test_an_invalid_pack_does_not_affect_the_others(tmp_path: Path, open_catalog: Callable[..., PackCatalog]) -> None:
    make_pack(tmp_path / "a", "good", FILES)
    make_pack(tmp_path / "a", "bad", FILES, surprise=1)
    (tmp_path / "a" / "no-pack").mkdir()
    make_pack(tmp_path / "b", "further", FILES)
    assert set(open_catalog().packs) == {"good", "further"}


def test_of_packs_with_equal_names_none_is_loaded_at_the_start(
    tmp_path: Path, open_catalog: Callable[..., PackCatalog]
) -> None:
    for folder in ("a", "b"):
        make_pack(tmp_path / folder, "kit", {**FILES, "which.py": folder})
    catalog = open_catalog()
    assert not catalog.packs
    shutil.rmtree(tmp_path / "b" / "kit")
    assert catalog.refresh()
    assert (catalog.packs["kit"].folder / "which.py").read_text() == "a"


def test_a_second_pack_of_a_name_takes_nothing_over(
    tmp_path: Path, open_catalog: Callable[..., PackCatalog], log_file: Path
) -> None:
    make_pack(tmp_path / "a", "kit", {"which.py": "a"})
    catalog = open_catalog()
    make_pack(tmp_path / "b", "kit", {"which.py": "b"})
    assert not catalog.refresh()
    assert (catalog.packs["kit"].folder / "which.py").read_text() == "a"
    assert errors(log_file) == ["two tool packs have the same name; no new one is used"]


def test_a_folder_that_is_away_takes_no_pack_with_it(
    tmp_path: Path, open_catalog: Callable[..., PackCatalog], log_file: Path
) -> None:
    make_pack(tmp_path / "a", "kit", FILES)
    catalog = open_catalog()
    (tmp_path / "a").rename(tmp_path / "away")
    assert not catalog.refresh()
    assert not catalog.refresh()
    assert set(catalog.packs) == {"kit"}
    assert errors(log_file) == ["folder of tool packs is unavailable"]
    (tmp_path / "away").rename(tmp_path / "a")
    assert not catalog.refresh()
