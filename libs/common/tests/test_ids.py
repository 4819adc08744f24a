"""Identifiers are UUIDs of version 7, unique and ordered."""

from __future__ import annotations

import os
import uuid

from libs.common import ids


def test_ids_are_version_7_and_ordered_by_time(monkeypatch: object) -> None:
    made = [ids.new_id() for _ in range(5000)]
    parsed = [uuid.UUID(text) for text in made]
    assert {u.version for u in parsed} == {7}
    assert {u.variant for u in parsed} == {uuid.RFC_4122}
    assert len(set(made)) == len(made)
    assert [m[:13] for m in made] == sorted(m[:13] for m in made)


def test_a_forked_process_makes_ids_of_its_own() -> None:
    ids.new_id()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, " ".join(ids.new_id()[14:] for _ in range(100)).encode())
        os._exit(0)
    os.close(writing)
    theirs = os.read(reading, 65536).decode().split()
    os.close(reading)
    os.waitpid(child, 0)
    ours = [ids.new_id()[14:] for _ in range(100)]
    assert len(theirs) == 100
    assert not set(ours) & set(theirs)
