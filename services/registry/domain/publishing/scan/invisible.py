"""Detects invisible characters and characters that change the display of others."""

from __future__ import annotations

import unicodedata

_ALLOWED_CONTROLS = "\t\n\r"
_ZERO_WIDTH = frozenset(
    "\u200b\u2060\u2061\u2062\u2063\u2064\ufeff\u180e\u034f\u00ad\u115f\u1160\u3164\uffa0\u17b4\u17b5"
)
_JOINERS = frozenset("\u200c\u200d")
_MARKS = frozenset("\u200e\u200f\u061c")
_BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_FLAG = "\U0001f3f4"
_RIGHT_TO_LEFT = ("R", "AL", "AN")


def find_invisible(text: str) -> str:
    """Return the kind of the first invisible character; empty when there is none."""
    if text.isascii() and text.isprintable():
        return ""
    right_to_left = any(unicodedata.bidirectional(character) in _RIGHT_TO_LEFT for character in text)
    for index, character in enumerate(text):
        kind = _hidden(text, index, character, right_to_left)
        if kind:
            return kind
    return ""


def without_invisible(text: str) -> str:
    """Return a text without invisible characters."""
    if text.isascii():
        return text
    return "".join(c for c in text if unicodedata.category(c) not in ("Cf", "Co", "Cn") and not _is_selector(c))


def _hidden(text: str, index: int, character: str, right_to_left: bool) -> str:
    code, before = ord(character), text[index - 1] if index else ""
    if character in _BIDI:
        return "a control that reverses the direction of text"
    if character in _ZERO_WIDTH:
        return "a zero-width character"
    if character in _JOINERS and not _joins(before):
        return "a stray joiner"
    if character in _MARKS and not right_to_left:
        return "a stray direction mark"
    if 0xE0000 <= code <= 0xE007F:
        return "" if _in_flag(text, index) else "a tag character"
    if _is_selector(character):
        return "" if _selects(before, code) else "a stray variation selector"
    category = unicodedata.category(character)
    if category == "Co":
        return "a private-use character"
    if category == "Cn" and (code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF):
        return "a noncharacter code point"
    return "a control character" if category == "Cc" and character not in _ALLOWED_CONTROLS else ""


def _joins(before: str) -> bool:
    """Return whether a joiner may follow: letters of joining scripts, and emoji."""
    if not before:
        return False
    if unicodedata.category(before) in ("So", "Sk", "Mn", "Mc") or _is_selector(before):
        return True
    return unicodedata.category(before) == "Lo"


def _in_flag(text: str, index: int) -> bool:
    start = index
    while start and 0xE0000 <= ord(text[start]) <= 0xE007F and index - start < 8:
        start -= 1
    return text[start] == _FLAG


def _is_selector(character: str) -> bool:
    code = ord(character)
    return 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF


def _selects(before: str, code: int) -> bool:
    """Return whether a variation selector may follow: one after a symbol, a keycap digit or an ideograph."""
    if not before or _is_selector(before):
        return False
    if code >= 0xE0100:
        return unicodedata.category(before) == "Lo"
    return unicodedata.category(before) in ("So", "Sm", "Po", "Lo", "Nd", "Pd", "Sk")
