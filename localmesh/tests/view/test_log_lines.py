from __future__ import annotations

import json
import re

from localmesh.view.log_lines import render_for_program, render_for_terminal

LINE = '{"ts": "2026-01-01T00:00:01.512345+00:00", "level": "warning", "service": "executor", "event": "tool slow", '
LINE += '"tool": "core.echo", "ms": 12.5, "note": "two words \\u001b[2J"}'


def plain(text: str) -> str:
    return re.sub(r"\x1b\[\d+m", "", text)


def test_a_terminal_gets_columns_and_never_a_control_character_of_a_caller() -> None:
    shown = render_for_terminal("executor", LINE)
    assert plain(shown).split()[:5] == ["00:00:01.512", "executor", "warning", "tool", "slow"]
    assert "tool=core.echo" in plain(shown)
    assert "ms=12.5" in plain(shown)
    assert "service=" not in plain(shown)
    assert "\x1b" not in plain(shown)
    assert "\x1b" not in plain(render_for_terminal("postgres", "LOG: \x1b[2J"))


def test_a_program_gets_one_object_a_line_with_the_part() -> None:
    assert json.loads(render_for_program("executor", LINE)) == {"part": "executor", **json.loads(LINE)}
    for text in ("LOG: started", "[1]", "{broken"):
        assert json.loads(render_for_program("postgres", text)) == {"part": "postgres", "line": text}
