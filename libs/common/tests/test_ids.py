"""Identifiers are UUIDs of version 7, unique and ordered."""

from __future__ import annotations

import uuid

from libs.common import ids


def test_ids_are_version_7_and_ordered_by_time(monkeypatch: object) -> None:
    made = [ids.new_id() for _ in range(5000)]
    parsed = [uuid.UUID(text) for text in made]
    assert {u.version for u in parsed} == {7}
    assert {u.variant for u in parsed} == {uuid.RFC_4122}
    assert len(set(made)) == len(made)
    assert [m[:13] for m in made] == sorted(m[:13] for m in made)
