"""Semantic checks: each holds or names the place where it does not, and none that is unknown is ever passed over."""

from __future__ import annotations

from typing import Any

import pytest

from services.executor.domain.arguments.semantic_checks import check_of


def broken(check: str, arguments: dict[str, Any]) -> list[tuple[str, str]]:
    return [(violation.path, violation.rule) for violation in check_of(check)(arguments)]


@pytest.mark.parametrize(
    ("check", "good", "bad", "path"),
    [
        ("not_before:/a:/b", {"a": "2026-01-01", "b": "2026-01-01"}, {"a": "2026-01-02", "b": "2026-01-01"}, "/b"),
        (
            "not_before:/a:/b",
            {"a": "2026-01-01T10:00:00+02:00", "b": "2026-01-01T08:00:00Z"},
            {"a": "2026-01-01T10:00:00Z", "b": "2026-01-01T11:59:59+02:00"},
            "/b",
        ),
        ("not_before:/a:/b", {"a": "2026-01-01"}, {"a": "2026-01-01", "b": "tomorrow"}, "/b"),
        ("not_before:/a:/b", {"b": "2026-01-01"}, {"a": "2026-01-01", "b": "2026-01-01T00:00:00Z"}, "/b"),
        ("not_less:/a:/b", {"a": 1, "b": 1.5}, {"a": 2, "b": 1}, "/b"),
        ("not_less:/a:/b", {"a": None, "b": 1}, {"a": 0, "b": True}, "/b"),
        ("differs:/a:/b", {"a": 1, "b": "1"}, {"a": 1, "b": 1.0}, "/b"),
        ("requires:/a:/b", {"a": 1, "b": 2}, {"a": 1}, "/a"),
        ("requires:/a:/b", {}, {"a": 1, "b": None}, "/a"),
        ("unique:/l/*/id", {"l": [{"id": 1}, {"id": "1"}, {}]}, {"l": [{"id": 1}, {"id": 2}, {"id": 1.0}]}, "/l/2/id"),
        ("at_most_one_of:/a:/b:/c", {"b": 1}, {"a": 1, "c": 1}, "/c"),
        ("at_most_one_of:/a:/b:/c", {"a": None, "c": 1}, {"a": 1, "b": 1}, "/b"),
        ("exactly_one_of:/a:/b", {"a": 1}, {}, ""),
        ("exactly_one_of:/a:/b", {"b": 1}, {"a": 1, "b": 1}, "/b"),
        ("at_least_one_of:/a:/b", {"a": 1, "b": 1}, {"c": 1}, ""),
        ("rfc3339:/t", {"t": "2026-02-28T23:59:59.123456789Z"}, {"t": "2026-02-30T00:00:00Z"}, "/t"),
        ("rfc3339:/t/*", {"t": []}, {"t": ["2026-01-01T00:00:00Z", "2026-01-01"]}, "/t/1"),
        ("rfc3339:/t", {"t": "2026-01-01t00:00:00z"}, {"t": "2026-W01-1"}, "/t"),
        ("timezone:/z", {"z": "Europe/Vienna"}, {"z": "Mars/Olympus"}, "/z"),
        ("timezone:/z", {"z": "UTC"}, {"z": "../../etc/passwd"}, "/z"),
        ("timezone:/z", {"z": None}, {"z": 7}, "/z"),
        ("regex:/p", {"p": "^[a-z]+$"}, {"p": "("}, "/p"),
        ("regex:/p", {"p": "a{2}"}, {"p": "a" * 1001}, "/p"),
        ("glob:/g", {"g": "src/**/*.[ch]"}, {"g": "src/[ab"}, "/g"),
        ("glob:/g", {"g": "[]]x"}, {"g": "a**b"}, "/g"),
        ("glob:/g", {"g": "a/**"}, {"g": ""}, "/g"),
        (
            "not_less:/slots/*/a:/slots/*/b",
            {"slots": [{"a": 5, "b": 6}, {"a": 1, "b": 2}]},
            {"slots": [{"a": 1, "b": 2}, {"a": 5, "b": 4}]},
            "/slots/1/b",
        ),
        ("exactly_one_of:/l/*/a:/l/*/b", {"l": [{"a": 1}, {"b": 1}]}, {"l": [{"a": 1}, {}]}, "/l/1"),
        ("requires:/l/*/a:/l/*/b", {"l": [{"a": 1, "b": 1}, {}]}, {"l": [{"b": 1}, {"a": 1}]}, "/l/1/a"),
        ("not_less:/least:/l/*", {"least": 1, "l": [1, 2]}, {"least": 2, "l": [2, 1]}, "/l/1"),
        ("unique:/x:y/*", {"x:y": [1, 2]}, {"x:y": [1, 1]}, "/x:y/1"),
    ],
)
def test_a_check_holds_or_names_its_place(check: str, good: Any, bad: Any, path: str) -> None:
    assert broken(check, good) == []
    assert broken(check, bad) == [(path, check.partition(":")[0])]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "unheard_of:/a",
        "unique",
        "unique:a",
        "unique:/a:/b",
        "not_before:/a",
        "not_before:/a:/b:/c",
        "exactly_one_of:/a",
        "at_most_one_of" + ":/a" * 17,
        "unique:/~2",
        "not_before:/a/*:/b/*",
        "__class__:/a",
    ],
)
def test_an_impossible_check_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        check_of(text)
