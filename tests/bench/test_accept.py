"""The accepted run is a copy of the last one, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.report.accept import accept
from bench.report.measurement import Row, document
from bench.suites import ONLY_WHEN_NAMED, SUITES

WHOLE = [name for name in SUITES if name not in ONLY_WHEN_NAMED]


def test_the_last_run_is_kept_with_its_own_chart(tmp_path: Path) -> None:
    for ending, text in (("json", rows(*WHOLE)), ("md", "![x](latest.svg)"), ("svg", "<svg/>")):
        (tmp_path / f"latest.{ending}").write_text(text)
    assert [file.name for file in accept(tmp_path)] == ["accepted.json", "accepted.md", "accepted.svg"]
    assert (tmp_path / "accepted.md").read_text() == "![x](accepted.svg)"
    assert (tmp_path / "accepted.svg").read_text() == "<svg/>"


def test_a_run_without_a_chart_is_not_accepted(tmp_path: Path) -> None:
    (tmp_path / "latest.json").write_text(rows(*WHOLE))
    (tmp_path / "latest.md").write_text("")
    with pytest.raises(FileNotFoundError):
        accept(tmp_path)
    assert not (tmp_path / "accepted.json").exists()


@pytest.mark.parametrize("missing", WHOLE)
def test_a_run_in_part_is_not_accepted(tmp_path: Path, missing: str) -> None:
    part = [name for name in WHOLE if name != missing]
    for ending, text in (("json", rows(*part)), ("md", ""), ("svg", "<svg/>")):
        (tmp_path / f"latest.{ending}").write_text(text)
    with pytest.raises(ValueError, match=missing):
        accept(tmp_path)
    assert not (tmp_path / "accepted.json").exists()


def rows(*suites: str) -> str:
    return document([Row(name, "case") for name in suites])
