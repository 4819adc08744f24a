"""A table of confusable letters: those that have been used to deceive, not all of Unicode's."""

from __future__ import annotations

import re
import unicodedata

_CYRILLIC = dict(zip("аеорсухіјѕԁԛԝһӏвкмнтгАВЕКМНОРСТУХІЈЅԌ", "aeopcyxijsdqwhlbkmhtrABEKMHOPCTYXIJSG", strict=True))
_GREEK = dict(zip("ορνυικταεΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "opvuiktaeABEZHIKMNOPTYX", strict=True))
_OTHER = dict(zip("օոսցɡɑıʟᴏꞁǀⅼ", "onuggailolll", strict=True))
LATIN_LOOKS = {**_CYRILLIC, **_GREEK, **_OTHER}
_FOLD = str.maketrans(LATIN_LOOKS)
_WORD = re.compile(r"[^\W\d_]{2,}")
# Digits and letter pairs that look like a letter in a name.
_DIGITS = str.maketrans("01", "ol")


def fold_confusables(text: str) -> str:
    """Return a text in lower case with every confusable letter replaced by the Latin one."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", text).translate(_FOLD).lower()


def name_skeleton(name: str) -> str:
    """Return a key that names with the same look share. `adapters/postgres/lookalikes.py` has it in SQL."""
    return name.replace("rn", "m").replace("vv", "w").translate(_DIGITS)


def mixes_scripts(text: str) -> bool:
    """Return whether a word mixes Latin letters with look-alikes, or uses mathematical letters."""
    if text.isascii():
        return False
    return any(_mixed(word) for word in _WORD.findall(text)) or any(0x1D400 <= ord(c) <= 0x1D7FF for c in text)


def _mixed(word: str) -> bool:
    looks = any(character in LATIN_LOOKS for character in word)
    return looks and any(character.isascii() for character in word)
