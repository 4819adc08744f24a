"""How a result is shown to its three readers: the model, a person, and whoever searches transcripts. Pure.

A template is text with `{/pointer}` in it, and nothing more: no conditions, no loops, no code. What a pointer leads to is put there as plain text, several
places (`*`) separated by commas, and nothing where there is nothing. A template that is nothing but a pointer means what it leads to.

The model reads the result as it is: it could read the same in the structured content, and a text that was silently mended would be another
text. What a person and a transcript get is kept and shown by programs, so it holds neither what is sensitive nor what cannot be
seen: controls, marks that turn the direction of writing, and letters without a shape.
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
# Categories of what has no shape: controls, formats, surrogates, private use, unassigned.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_SPACES = re.compile(r"\s+")


def render_result(rendering: Rendering, value: Any, declared: Declared | None, scanner: Scanner) -> RenderedResult:
    """Return the representations of a result that its caller may see, each within its bounds."""
    if not (rendering.model or rendering.ui or rendering.search):
        return PLAIN
    model = _within(_filled(rendering.model, value), MODEL_BYTES)
    if not (rendering.ui or rendering.search):
        return RenderedResult(model)
    seen = scanner.value(value, declared).value
    ui, search = (_visible(_filled(template, seen)) for template in (rendering.ui, rendering.search))
    if len(ui) > UI_CHARACTERS:
        ui = ui[: UI_CHARACTERS - 1] + _CUT
    return RenderedResult(model, ui, _within(search, SEARCH_BYTES))


@lru_cache(maxsize=1024)
def _parts(template: str) -> tuple[str | tuple[str, ...], ...]:
    """The texts and places of a template, by turns."""
    if _ONLY_A_POINTER.fullmatch(template):
        return (steps_of(template),)
    pieces = _PLACE.split(template)
    return tuple(steps_of(piece) if index % 2 else piece for index, piece in enumerate(pieces))


def _filled(template: str, value: Any) -> str:
    if not template:
        return ""
    return "".join(
        part if isinstance(part, str) else ", ".join(_plain(found) for _, found in places(value, part))
        for part in _parts(template)
    )


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else dump(value).decode()


def _within(text: str, limit: int) -> str:
    """The text, or as much of its beginning as fits, with a mark that it goes on."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= limit:
        return text
    return encoded[: limit - len(_CUT.encode())].decode("utf-8", "ignore") + _CUT


def _visible(text: str) -> str:
    spaced = _SPACES.sub(" ", text)
    if spaced.isascii() and spaced.isprintable():
        return spaced.strip()
    return "".join(each for each in spaced if unicodedata.category(each) not in _UNSEEN).strip()
