"""How text is read that is written to be misread."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.common.redaction.detectors.spans import Span
from libs.common.redaction.lookalikes import plain_text


@pytest.mark.parametrize(
    "written",
    ["p\u0430ssword", "pass\u200bword", "\uff50\uff41ssword", "p\u00e1ssword", "pa\u0301ssword", "pass\u00adword"],
)
def test_a_name_reads_as_it_looks(written: str) -> None:
    assert plain_text(written).text == "password"


def test_a_span_covers_the_invisible_characters_inside_it() -> None:
    text = "a \u200bpa\u200bss\u200b b"
    plain = plain_text(text)
    start = plain.text.index("pass")
    span = plain.original(Span(start, start + 4, "x"))
    assert text[span.start : span.end] == "pa\u200bss"


@given(st.text())
def test_positions_lead_to_the_characters_they_stand_for(text: str) -> None:
    plain = plain_text(text)
    if plain.positions is None:
        assert len(plain.text) == len(text)
    else:
        assert len(plain.text) == len(plain.positions)
        assert list(plain.positions) == sorted(set(plain.positions))
