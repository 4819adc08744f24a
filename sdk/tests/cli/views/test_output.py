"""Terminals and pipes: nothing is cut off, nothing is coloured against the reader's will."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
from toolmesh_sdk.cli.views import output

ROWS = [("core.echo", "a title that is far wider than the forty columns of this terminal"), ("[b]", "grüße 🙂")]


class Terminal(io.StringIO):
    """A text stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return a function that prints to a terminal of forty columns and returns what it shows."""
    for name, value in {"COLUMNS": "40", "TERM": "xterm-256color"}.items():
        monkeypatch.setenv(name, value)
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)

    def show(action: Callable[..., None], *arguments: Any) -> str:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", terminal := Terminal())
            action(*arguments)
        return terminal.getvalue()

    return show


def test_a_narrow_terminal_folds_and_loses_nothing(shown: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    text = shown(output.print_table, ("TOOL", "TITLE"), ROWS)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    assert all(len(line) <= 40 for line in lines)
    titles = " ".join(" ".join(line[11:].split()) for line in lines)
    assert ROWS[0][1] in titles
    assert "grüße 🙂" in titles
    assert any(line.startswith("[b]") for line in lines)


def test_a_terminal_gets_colour_unless_it_says_no(shown: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[3" in shown(output.print_content, {"text": "hi"})
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in shown(output.print_content, {"text": "hi"})


def test_a_long_value_is_not_broken_into_lines(shown: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "x" * 500 in shown(output.print_content, {"text": "x" * 500})


def test_a_pipe_gets_columns_without_wrapping(capsys: Any) -> None:
    output.print_table(("TOOL", "TITLE"), ROWS)
    assert capsys.readouterr().out.splitlines() == [
        "TOOL       TITLE",
        "core.echo  " + ROWS[0][1],
        "[b]        grüße 🙂",
    ]


def test_a_stream_that_cannot_carry_a_character_gets_its_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    output.print_json({"text": "ü"}, lines=True)
    assert stream.buffer.getvalue() == b'{"text": "\\u00fc"}\n'


def test_what_others_wrote_cannot_steer_the_terminal(shown: Callable[..., str], capsys: Any) -> None:
    nasty = [("evil\x1b]0;title\x07", "two\nlines\x9b2J")]
    text = shown(output.print_table, ("TOOL", "TITLE"), nasty)
    assert "\x1b]0" not in text
    assert "\x9b" not in text
    output.print_table(("TOOL", "TITLE"), nasty)
    assert capsys.readouterr().out.splitlines()[1] == r"evil\x1b]0;title\x07  two\x0alines\x9b2J"


def test_a_result_cannot_steer_the_terminal_and_still_is_what_it_was(shown: Callable[..., str], capsys: Any) -> None:
    content = {"text": "\x1b[2J\x9b2J\x7f"}
    assert "\x9b" not in shown(output.print_content, content)
    output.print_content(content)
    assert json.loads(capsys.readouterr().out) == content
