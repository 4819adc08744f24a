"""Misspelled words are corrected; words that tools have, short ones and names are not."""

from __future__ import annotations

import pytest

from services.registry.domain.discovery.spelling import MAX_CORRECTIONS, Spelling

RANKS = {"calendar": 10, "meeting": 20, "meetings": 30, "sigma": 40, "form": 5, "forms": 50}


@pytest.fixture(scope="module")
def spelling() -> Spelling:
    return Spelling(RANKS, frozenset({"figma"}).__contains__)


@pytest.mark.parametrize("wrong", ["calender", "caledar", "callendar", "clendar", "calenadr", "calendarr", "acalendar"])
def test_one_edit_is_corrected(spelling: Spelling, wrong: str) -> None:
    assert spelling.correct(f"My {wrong}, today") == "My calendar, today"


def test_the_most_common_of_several_words_is_taken(spelling: Spelling) -> None:
    assert spelling.correct("meetinge") == "meeting"


@pytest.mark.parametrize("right", ["Meetings", "figma", "frm", "caledr", "日本語", "", "x1234567"])
def test_other_words_stay(spelling: Spelling, right: str) -> None:
    assert spelling.correct(right) == right


def test_the_number_of_corrections_is_bounded(spelling: Spelling) -> None:
    text = " ".join(["calender"] * (MAX_CORRECTIONS + 3))
    assert spelling.correct(text).split().count("calendar") == MAX_CORRECTIONS
