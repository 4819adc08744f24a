"""Tokenizers with locally installed vocabularies. Nothing is downloaded."""

from __future__ import annotations

import base64
import importlib.util
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType

# This package carries tiktoken's vocabularies as files, under the names of tiktoken's own cache. Never imported.
PACKAGE = "llama_index"
CACHE = Path("core/_static/tiktoken_cache")


# The file of cl100k_base in that cache.
_WORD_FILE = "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"


@cache
def word_ranks() -> Mapping[str, int]:
    """Return the words that a vocabulary has as one token, with their rank: the lower, the more common.

    The vocabulary has 100,000 entries, so it is read once in a process.
    """
    ranks: dict[str, int] = {}
    with (_cache_folder() / _WORD_FILE).open("rb") as lines:
        for line in lines:
            # Words begin with a space.
            if not line.startswith(b"I"):
                continue
            token, rank = line.split()
            word = base64.b64decode(token)[1:]
            if len(word) > 2 and word.isalpha() and word.isascii():
                ranks.setdefault(word.decode().lower(), int(rank))
    return MappingProxyType(ranks)


class Vocabularies:
    """Counts tokens. Each vocabulary is loaded on first use."""

    def __init__(self) -> None:
        # tiktoken looks here before it downloads, and verifies the digest of the file.
        os.environ["TIKTOKEN_CACHE_DIR"] = str(_cache_folder())

    def count(self, texts: Sequence[str], tokenizer: str) -> list[int]:
        """Return the token count of each text. Special tokens in a text are counted as text."""
        import tiktoken  # Half a second and 50 MB with a vocabulary; a process that only embeds does without.

        encoding = tiktoken.get_encoding(tokenizer)
        return [len(encoding.encode_ordinary(text)) for text in texts]


def _cache_folder() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    if not folders:
        raise FileNotFoundError(f"the package {PACKAGE} is not installed")
    return Path(folders[0]) / CACHE
