"""Tells queries in English from others: the embedding model knows English only, and finds nonsense for the rest."""

from __future__ import annotations

import re
import unicodedata

_WORD = re.compile(r"[^\W\d_]+")
# Function words that are frequent in their language and rare in English texts, accents removed.
_OTHER = frozenset(
    re.findall(
        r"\w+",
        # German
        "der die das den dem des und oder ein eine einen einem einer nicht mit von fur auf ist sind wird wie wo wann "
        "zu zum zur im am bei aus nach mir mich wir ich sie es alle mein meine meinen meiner dein deine sein seine "
        "unser unsere zwischen uber unter durch ohne gegen bis als auch nur noch kann bitte "
        # French
        "le la les un une des du de et ou est sont pour avec dans sur par qui que quel quelle aux ce cette ces mes mon "
        "ma nos vers entre "
        # Spanish
        "el los las una unos del al y o es son para con por que en cual mi mis su sus este esta estos desde entre "
        # Italian and Portuguese
        "il lo gli di della dei per che uno nel o os as um uma do da dos das em no na com",
    )
)
_ENGLISH = frozenset(
    re.findall(
        r"\w+",
        "the a an and or of to in on for with from by at is are was be this that these those my our your their its it "
        "what which when where who how all into over about as if me us we you they every each some any new",
    )
)


def is_english(text: str) -> bool:
    """Return whether a text may be English. Texts without function words count as English unless their letters are
    of another script."""
    letters = [letter for letter in text if letter.isalpha()]
    latin = sum("LATIN" in unicodedata.name(letter, "") for letter in letters)
    if latin < len(letters) / 2:
        return False
    words = [_plain(word) for word in _WORD.findall(text)]
    other = sum(word in _OTHER and word not in _ENGLISH for word in words)
    english = sum(word in _ENGLISH for word in words)
    return other <= english


def _plain(word: str) -> str:
    decomposed = unicodedata.normalize("NFD", word.lower())
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter))
