"""The steps of setting up, without installing anything."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools import setup
from tools.setup import Progress, Step, StepError, check_free_space, run_step, uv_lock


def test_only_the_installer_is_taken_from_the_lock() -> None:
    own = "uv==2 \\\n    --hash=sha256:2 \\\n    --hash=sha256:3\n"
    assert uv_lock(f"a==1 \\\n    --hash=sha256:1\n{own}z==4 \\\n    --hash=sha256:5\n") == own


def test_a_step_says_how_far_it_is_and_a_failed_one_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(setup, "LOG", tmp_path / "setup.log")
    fails = (sys.executable, "-c", "import sys; sys.exit('no such host')")
    works = (sys.executable, "-c", "print('fetched')")
    progress = Progress(2)
    run_step(Step("install much", [fails, works]), progress)
    assert "[1/2] install much" in capsys.readouterr().out
    with pytest.raises(StepError, match="no such host"):
        run_step(Step("install more", [fails]), progress)
    assert "[2/2] install more" in capsys.readouterr().out


def test_a_disk_without_room_is_found_before_anything_is_fetched(tmp_path: Path) -> None:
    with pytest.raises(StepError):
        check_free_space(tmp_path, needed=10**18)
