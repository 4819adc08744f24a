"""How well it finds, on the labelled set that ships with it; docs/redaction.md shows the same table."""

from __future__ import annotations

from pathlib import Path

import pytest

from libs.common.redaction.scanner import Scanner
from libs.common.redaction.tests.samples import LABELLED
from tools.measure_redaction import TOTAL, measure, table


def test_the_set_is_large_and_half_of_it_is_hard_to_leave_alone() -> None:
    assert len(LABELLED) >= 400
    assert sum(not snippet["expect"] for snippet in LABELLED) >= 200


def test_it_finds_nearly_all_and_takes_nearly_nothing_else() -> None:
    score = measure(LABELLED, Scanner()).scores[TOTAL]
    assert score.precision >= 0.97
    assert score.recall >= 0.95


@pytest.mark.parametrize("kind", sorted({kind for snippet in LABELLED for kind, _ in snippet["expect"]}))
def test_no_kind_is_left_behind(kind: str) -> None:
    score = measure(LABELLED, Scanner()).scores[kind]
    assert score.precision >= 0.94
    assert score.recall >= 0.94


def test_what_is_missed_and_mistaken_is_counted() -> None:
    snippets = [
        {"text": "nothing here", "expect": [["email", "nothing"]]},
        {"text": "a@example.com", "expect": []},
        {"text": "b@example.com", "expect": [["email", "b@example.com"]]},
    ]
    score = measure(snippets, Scanner()).scores["email"]  # type: ignore[arg-type]
    assert (score.found, score.missed, score.mistaken) == (1, 1, 1)


def test_the_document_shows_what_is_measured(repository: Path) -> None:
    assert table(measure(LABELLED, Scanner())) in (repository / "docs" / "redaction.md").read_text()
