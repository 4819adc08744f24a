"""word_statistics: counts what a text is made of."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from toolmesh_tool import Call

_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


def statistics(arguments: dict[str, Any], call: Call) -> dict[str, Any]:
    """Return how many characters, words and different words there are, and the most frequent ones."""
    text = arguments["text"]
    words = Counter(word.casefold() for word in _WORD.findall(text))
    # Equal counts in the order of the alphabet, so that the same text always has the same answer.
    ordered = sorted(words.items(), key=lambda item: (-item[1], item[0]))
    return {
        "characters": len(text),
        "words": words.total(),
        "distinct": len(words),
        "frequent": [{"word": word, "count": count} for word, count in ordered[: arguments["top"]]],
    }
