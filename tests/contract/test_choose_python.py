"""The environment is made with the fastest Python that was found, and with none that will not do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.choose_python import ask, choose, found

OWNERS, OTHER = Path("/owner/python3"), Path("/other/python3")


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        ([], None),
        ([(1.0, OWNERS)], OWNERS),
        ([(1.0, OWNERS), (0.5, OTHER)], OTHER),
        ([(1.0, OWNERS), (0.95, OTHER)], OWNERS),
        ([(0.5, OWNERS), (1.0, OTHER)], OWNERS),
        ([(1.0, OWNERS), (0.6, OTHER), (0.6, OWNERS)], OWNERS),
    ],
    ids=[
        "none",
        "only one",
        "clearly faster",
        "hardly faster",
        "slower",
        "one found under two names counts by its best",
    ],
)
def test_the_first_is_chosen_unless_another_is_clearly_faster(
    asked: list[tuple[float, Path]], chosen: Path | None
) -> None:
    """What its owner calls Python is left aside only for a reason."""
    assert choose(asked) == chosen


def test_all_of_the_path_are_found_and_the_plain_name_comes_first(tmp_path: Path) -> None:
    """What cannot be run, and what goes by another name, is not found."""
    for folder, name, mode in [
        ("a", "python3.12", 0o755),
        ("a", "python2", 0o755),
        ("b", "python3", 0o755),
        ("b", "python3.11", 0o644),
    ]:
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / name).touch(mode)
    path = os.pathsep.join(["", str(tmp_path / "a"), str(tmp_path / "absent"), str(tmp_path / "b")])

    assert list(found(path)) == [tmp_path / "b" / "python3", tmp_path / "a" / "python3.12"]


@pytest.mark.parametrize(
    "script", ["exit 1", "echo", "echo soon /bin/python3", "echo 1"], ids=["fails", "silent", "no number", "no place"]
)
def test_what_does_not_answer_as_a_python_does_is_left_out(script: str, tmp_path: Path) -> None:
    """A name on the PATH proves nothing."""
    python = tmp_path / "python3"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)

    assert ask(python) is None


def test_the_one_named_is_taken_and_an_unknown_name_is_refused(repository: Path) -> None:
    """As `make setup PYTHON=...` does."""
    command = [sys.executable, str(repository / "tools" / "choose_python.py")]

    taken = subprocess.run([*command, sys.executable], capture_output=True, text=True, check=True).stdout.strip()
    assert taken == str(Path(sys._base_executable).resolve())  # type: ignore[attr-defined]
    refused = subprocess.run([*command, "no-such-python"], capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stdout) == (1, "")
