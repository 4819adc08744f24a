"""JSON documents become rows that a person can read and compare."""

from __future__ import annotations

from services.gateway.console.approvals.json_view import (
    MAX_ROWS,
    MAX_VALUE_CHARS,
    Change,
    changes_between,
    document_of,
    read_object,
)


def test_every_value_has_a_row_with_its_path() -> None:
    content = {"to": [{"name": "a"}, {"name": 2}], "on": True, "none": None, "key": "[redacted:secret]", "left": {}}
    rows = {value.path: (value.text, value.kind) for value in document_of(content).values}
    assert rows == {
        "to[0].name": ("a", "text"),
        "to[1].name": ("2", "number"),
        "on": ("true", "constant"),
        "none": ("null", "constant"),
        "key": ("[redacted:secret]", "redacted"),
        "left": ("{}", "empty"),
    }


def test_large_documents_are_cut_and_say_so() -> None:
    document = document_of({"n": list(range(MAX_ROWS + 7)), "text": "x"})
    assert (len(document.values), document.omitted) == (MAX_ROWS, 8)
    (row,) = document_of({"text": "y" * (MAX_VALUE_CHARS + 1)}).values
    assert row.text.endswith(f"({MAX_VALUE_CHARS + 1} characters)")


def test_numbers_keep_their_digits() -> None:
    content = read_object(b'{"n": 18446744073709551615}')
    assert content is not None
    assert document_of(content).values[0].text == "18446744073709551615"


def test_what_is_no_object_is_not_shown() -> None:
    assert [read_object(raw) for raw in (b"", b"[1]", b"{", b'"x"', b"\xff")] == [None] * 5


def test_differences_name_what_was_added_removed_and_changed() -> None:
    before, after = {"a": 1, "b": [1, 2], "c": "x"}, {"a": 1, "b": [1, 3], "d": None}
    assert changes_between(before, after) == (
        Change("b[1]", "2", "3"),
        Change("c", "x", None),
        Change("d", None, "null"),
    )
