"""Letters that look like others. A small table of our own: the letters that have been used to deceive, not all there are."""

from __future__ import annotations

import re
import unicodedata

_CYRILLIC = dict(zip("аеорсухіјѕԁԛԝһӏвкмнтгАВЕКМНОРСТУХІЈЅԌ", "aeopcyxijsdqwhlbkmhtrABEKMHOPCTYXIJSG", strict=True))
_GREEK = dict(zip("ορνυικταεΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "opvuiktaeABEZHIKMNOPTYX", strict=True))
_OTHER = dict(zip("օոսցɡɑıʟᴏꞁǀⅼ", "onuggailolll", strict=True))
LATIN_LOOKS = {**_CYRILLIC, **_GREEK, **_OTHER}
_FOLD = str.maketrans(LATIN_LOOKS)
_WORD = re.compile(r"[^\W\d_]{2,}")
# Digits and pairs that pass for a letter in a name, which has no other letters than these.
_DIGITS = str.maketrans("01", "ol")


def fold_confusables(text: str) -> str:
    """Return a text with every look-alike replaced by what it looks like, in small letters."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", text).translate(_FOLD).lower()


def name_skeleton(name: str) -> str:
    """Return what two names have in common that are read as the same. `adapters/lookalikes.py` says it in SQL."""
    return name.replace("rn", "m").replace("vv", "w").translate(_DIGITS)


def mixes_scripts(text: str) -> bool:
    """True if a word mixes Latin letters with letters that only look Latin, or is written in letters made for formulas."""
    if text.isascii():
        return False
    return any(_mixed(word) for word in _WORD.findall(text)) or any(0x1D400 <= ord(c) <= 0x1D7FF for c in text)


def _mixed(word: str) -> bool:
    looks = any(character in LATIN_LOOKS for character in word)
    return looks and any(character.isascii() for character in word)
