from __future__ import annotations

import itertools

import pytest

from localmesh.state.state import State
from localmesh.view import logs as logview


@pytest.fixture
def written(state: State) -> State:
    state.log_file("authz").write_text(
        '{"ts": "2026-01-01T00:00:01.5Z", "m": "one"}\n{"ts": "2026-01-01T00:00:03Z", "m": "four"}\n'
    )
    state.log_file("postgres").write_text(
        "2026-01-01 00:00:02.000 UTC LOG: two\n  and its second line\n2026-01-01 00:00:04.000 UTC LOG: five\n"
    )
    return state


def test_the_parts_that_wrote_are_known(written: State) -> None:
    assert logview.parts(written) == ["authz", "postgres"]


def test_lines_of_all_parts_come_in_order_of_time(written: State) -> None:
    seen = list(logview.read(written, ["authz", "postgres"], 10, follow=False))
    assert [name for name, _ in seen] == ["authz", "postgres", "postgres", "authz", "postgres"]
    assert seen[2] == ("postgres", "  and its second line")


def test_only_as_many_as_asked_for(written: State) -> None:
    (last,) = logview.read(written, ["authz", "postgres"], 1, follow=False)
    assert last[0] == "postgres"
    assert list(logview.read(written, ["authz"], 0, follow=False)) == []


def test_following_shows_what_is_written_and_survives_rotation(written: State) -> None:
    log = written.log_file("authz")
    lines = logview.read(written, ["authz"], 1, follow=True)
    next(lines)
    with log.open("a") as file:
        file.write("more\nmost\nhal")
    assert [line for _, line in itertools.islice(lines, 2)] == ["more", "most"]
    with log.open("a") as file:
        file.write("f\n")
    assert next(lines) == ("authz", "half")
    log.write_text("new\n")
    assert next(lines) == ("authz", "new")
