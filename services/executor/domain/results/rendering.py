"""Renders a result by the templates of its tool, for the model, the UI and the search index.

A template is a text with JSON Pointers in braces, or a JSON Pointer alone. The text for the model is not redacted: the
model reads the same in the structured content. The texts for the UI and the index are stored and displayed by programs,
so they contain no sensitive values and no invisible characters: controls, bidirectional marks, unassigned code points.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Any

from libs.common.json.json_pointer import places, steps_of
from libs.common.json.jsonio import dump
from libs.common.redaction.declared import Declared
from libs.common.redaction.scanner import Scanner
from services.executor.domain.model import PLAIN, RenderedResult
from services.executor.domain.tool import Rendering

MODEL_BYTES = 16 * 1024
UI_CHARACTERS = 500
SEARCH_BYTES = 2 * 1024
_CUT = "…"
_POINTER = r"(?:/(?:[^~/{}]|~[01])*)+"
_PLACE = re.compile(r"\{(" + _POINTER + r")\}")
_ONLY_A_POINTER = re.compile(_POINTER)
# Unicode categories without a glyph: controls, formats, surrogates, private use, unassigned.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_SPACES = re.compile(r"\s+")


def render_result(rendering: Rendering, value: Any, declared: Declared | None, scanner: Scanner) -> RenderedResult:
    """Return the rendered texts of a result, each within its size limit."""
    if not (rendering.model or rendering.ui or rendering.search):
        return PLAIN
    model = _within(_filled(rendering.model, value), MODEL_BYTES)
    if not (rendering.ui or rendering.search):
        return RenderedResult(model)
    redacted = scanner.value(value, declared).value
    ui, search = (_visible(_filled(template, redacted)) for template in (rendering.ui, rendering.search))
    if len(ui) > UI_CHARACTERS:
        ui = ui[: UI_CHARACTERS - 1] + _CUT
    return RenderedResult(model, ui, _within(search, SEARCH_BYTES))


@lru_cache(maxsize=1024)
def _parts(template: str) -> tuple[str | tuple[str, ...], ...]:
    """Return the texts and pointers of a template, alternating."""
    if _ONLY_A_POINTER.fullmatch(template):
        return (steps_of(template),)
    pieces = _PLACE.split(template)
    return tuple(steps_of(piece) if index % 2 else piece for index, piece in enumerate(pieces))


def _filled(template: str, value: Any) -> str:
    if not template:
        return ""
    return "".join(
        part if isinstance(part, str) else ", ".join(_plain(member) for _, member in places(value, part))
        for part in _parts(template)
    )


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else dump(value).decode()


def _within(text: str, limit: int) -> str:
    """Truncate a text to `limit` bytes, with an ellipsis."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= limit:
        return text
    return encoded[: limit - len(_CUT.encode())].decode("utf-8", "ignore") + _CUT


def _visible(text: str) -> str:
    spaced = _SPACES.sub(" ", text)
    if spaced.isascii() and spaced.isprintable():
        return spaced.strip()
    return "".join(char for char in spaced if unicodedata.category(char) not in _UNSEEN).strip()
