"""Tokenizers whose vocabularies are on this machine. Nothing is ever fetched."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path

# Carries the vocabularies of tiktoken as files, under the names that tiktoken's own cache gives them. Never imported.
PACKAGE = "llama_index"
CACHE = Path("core/_static/tiktoken_cache")


class Vocabularies:
    """Counts tokens; each vocabulary is read when it is first wanted."""

    def __init__(self) -> None:
        spec = importlib.util.find_spec(PACKAGE)
        folders = list(spec.submodule_search_locations or ()) if spec else []
        if not folders:
            raise FileNotFoundError(f"the package {PACKAGE} is not installed")
        # Where tiktoken looks before it would go out; it also compares the file with the digest that it knows.
        os.environ["TIKTOKEN_CACHE_DIR"] = str(Path(folders[0]) / CACHE)

    def count(self, texts: Sequence[str], tokenizer: str) -> list[int]:
        """Return how many tokens each text has. Text that looks like a special token is counted as text."""
        import tiktoken  # Half a second and 50 MB with a vocabulary; a process that only embeds does without.

        encoding = tiktoken.get_encoding(tokenizer)
        return [len(encoding.encode_ordinary(text)) for text in texts]
