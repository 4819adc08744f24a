"""Tokenizers with locally installed vocabularies. Nothing is downloaded."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path

# This package carries tiktoken's vocabularies as files, under the names of tiktoken's own cache. Never imported.
PACKAGE = "llama_index"
CACHE = Path("core/_static/tiktoken_cache")


class Vocabularies:
    """Counts tokens. Each vocabulary is loaded on first use."""

    def __init__(self) -> None:
        spec = importlib.util.find_spec(PACKAGE)
        folders = list(spec.submodule_search_locations or ()) if spec else []
        if not folders:
            raise FileNotFoundError(f"the package {PACKAGE} is not installed")
        # tiktoken looks here before it downloads, and verifies the digest of the file.
        os.environ["TIKTOKEN_CACHE_DIR"] = str(Path(folders[0]) / CACHE)

    def count(self, texts: Sequence[str], tokenizer: str) -> list[int]:
        """Return the token count of each text. Special tokens in a text are counted as text."""
        import tiktoken  # Half a second and 50 MB with a vocabulary; a process that only embeds does without.

        encoding = tiktoken.get_encoding(tokenizer)
        return [len(encoding.encode_ordinary(text)) for text in texts]
