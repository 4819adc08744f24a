"""Reads text as a person sees it: look-alike letters as Latin ones, invisible characters left out."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from itertools import compress
from typing import NamedTuple

from libs.common.redaction.detectors.spans import Span

# Cyrillic, Greek and Armenian letters that look like a Latin one, in the order of _LATIN. Unicode's compatibility forms
# (full width, mathematical, with accents) are derived and need no row.
_LOOKALIKES = (
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u04bb\u0501\u051b\u051d\u04cf\u043a\u043c\u0442"
    "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03b1\u03b5\u03b9\u03ba"
    "\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0423\u0425"
    "\u0406\u0408\u0405\u0578\u057d\u0581\u0585\u0261\u0269\u0251\u0131"
)
_LATIN = "aeopcyxijshdqwlkmtABEZHIKMNOPTYXaeikvoptuxABEKMHOPCTYXIJSnugogiai"
_INVISIBLE = frozenset({"Cf", "Mn", "Me"})


class PlainText(NamedTuple):
    """A text as it is seen, and the position of each of its characters in the original; None if they are the same."""

    text: str
    positions: Sequence[int] | None

    def original(self, span: Span) -> Span:
        """Return the span in the original text, with the invisible characters inside it."""
        if self.positions is None:
            return span
        return Span(self.positions[span.start], self.positions[span.end - 1] + 1, span.kind)


class _PlainCharacters(dict[int, int]):
    """Maps letters, digits, spaces and dashes to ASCII ones, one to one. Invisible characters become NUL."""

    def __missing__(self, point: int) -> int:
        plain = _plain(chr(point), point)
        if len(self) < 4096:
            self[point] = plain
        return plain


def _plain(character: str, point: int) -> int:
    digit = unicodedata.decimal(character, -1)
    if digit >= 0:
        return 48 + digit
    category = unicodedata.category(character)
    if category in _INVISIBLE:
        return 0
    if category in ("Zs", "Pd"):
        return 32 if category == "Zs" else 45
    base = unicodedata.normalize("NFKD", character)[:1]
    return ord(base) if category[0] == "L" and base.isascii() and base.isalpha() else point


_PLAIN = _PlainCharacters({point: point for point in range(128)})
_PLAIN.update(zip(map(ord, _LOOKALIKES), map(ord, _LATIN), strict=True))


def plain_text(text: str) -> PlainText:
    """Return the text as it is seen."""
    if text.isascii():
        return PlainText(text, None)
    plain = text.translate(_PLAIN)
    if "\0" not in plain:
        return PlainText(plain, None)
    visible = [character != "\0" for character in plain]
    return PlainText(plain.replace("\0", ""), list(compress(range(len(plain)), visible)))
