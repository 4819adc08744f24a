"""A typed function as a tool: `toolmesh pack build` writes its manifest."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from toolmesh_tool import tool


@dataclass
class Count:
    word: str
    times: int


@tool(
    namespace="samples",
    mutation_class="read_only",
    tier="process",
    examples=[({"text": "to be or to do", "top": 1}, {"result": [{"word": "to", "times": 2}]})],
)
def frequent_words(text: str, top: int = 3) -> list[Count]:
    """Lists the most frequent words of a text.

    Args:
        text: The text to read.
        top: How many words to list.
    """
    return [Count(word, times) for word, times in Counter(text.lower().split()).most_common(top)]
