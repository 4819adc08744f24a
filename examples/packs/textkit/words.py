"""word_statistics: counts what a text is made of."""

from __future__ import annotations

import re
from collections import Counter
from typing import Annotated, TypedDict

from toolmesh_tool import Limits, tool

_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


class Word(TypedDict):
    word: str
    count: Annotated[int, Limits(ge=1)]


class Statistics(TypedDict):
    characters: Annotated[int, Limits(ge=0)]
    words: Annotated[int, Limits(ge=0)]
    distinct: Annotated[int, Limits(ge=0)]
    frequent: list[Word]


@tool(
    namespace="samples",
    mutation_class="read_only",
    tier="process",
    timeout=2,
    memory="128Mi",
    tags=["text"],
    examples=[
        (
            {"text": "To be, or not to be", "top": 2},
            {
                "characters": 19,
                "words": 6,
                "distinct": 4,
                "frequent": [{"word": "be", "count": 2}, {"word": "to", "count": 2}],
            },
        )
    ],
    manifest={"observability": {"audit_detail": "summary"}},
)
def word_statistics(
    text: Annotated[str, Limits(max_length=1_000_000)], top: Annotated[int, Limits(ge=0, le=100)] = 10
) -> Statistics:
    """Counts the characters, words and different words of a text, and lists the most frequent words.

    Args:
        text: The text to read.
        top: How many of the most frequent words to list.
    """
    words = Counter(word.casefold() for word in _WORD.findall(text))
    # Equal counts in the order of the alphabet, so that the same text always has the same answer.
    ordered = sorted(words.items(), key=lambda item: (-item[1], item[0]))
    frequent: list[Word] = [{"word": word, "count": count} for word, count in ordered[:top]]
    return {"characters": len(text), "words": words.total(), "distinct": len(words), "frequent": frequent}
