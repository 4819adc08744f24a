"""Extracts the search text of a manifest: weighted terms of each field, and the text to embed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from services.registry.domain.publishing.manifest import Manifest

# Part of the identity of a vector: increment it when the embedded text changes.
EMBEDDING_TEXT_VERSION = "1"
_WORD = re.compile(r"[a-z0-9]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# Stop words.
_COMMON = frozenset(
    re.findall(
        r"\w+",
        "a about all also am an and any are as at be been but by can could did do does for from get give had has have "
        "how i if in into is it its just like me my need no not of on one or our out please show so some tell that "
        "the their them then there these they this to tool us use using want was we were what when where which who "
        "will with would you your",
    )
)
# The weight of a term by field.
WEIGHTS: Mapping[str, float] = {
    "name": 3.0,
    "aliases": 2.0,
    "title": 2.5,
    "search_hint": 2.0,
    "tags": 2.0,
    "capabilities": 1.5,
    "namespace": 1.0,
    "description": 1.0,
}
_SCHEMA_NAMES = 20


def terms(text: str) -> list[str]:
    """Return the stems of a text in order, without stop words."""
    words = _WORD.findall(_CAMEL.sub(" ", text).lower())
    return [_stem(word) for word in words if word not in _COMMON]


def query_terms(text: str) -> list[str]:
    """Return the distinct terms of a query. A query of stop words only consists of those."""
    stems = terms(text) or [_stem(word) for word in _WORD.findall(text.lower())]
    return list(dict.fromkeys(stems))


def weighted_terms(manifest: Manifest, aliases: tuple[str, ...]) -> tuple[dict[str, float], int]:
    """Return the weight of each term of a tool, and the number of terms."""
    counted: dict[str, float] = {}
    length = 0
    for field, text in _fields(manifest, aliases):
        stems = terms(text)
        length += len(stems)
        for term in stems:
            counted[term] = counted.get(term, 0.0) + WEIGHTS[field]
    return counted, length


def embedding_text(manifest: Manifest) -> str:
    """Return the text to embed: title, description, search hint and the names of the input properties. Descriptions of
    parameters are left out: they lower the measured quality, because they are alike in different tools."""
    described = [f"{manifest.title}.", manifest.text("description"), manifest.text("search_hint")]
    return " ".join([*(part for part in described if part), *_schema_words(manifest.input.get("schema", {}))])


def summary(manifest: Manifest, limit: int = 160) -> str:
    """Return the first sentence of the description, cut at a word if it is long."""
    text = " ".join(manifest.text("description").split())
    sentence = re.split(r"(?<=[.!?])\s", text, maxsplit=1)[0]
    return sentence if len(sentence) <= limit else sentence[: limit - 1].rsplit(" ", 1)[0] + "…"


def _fields(manifest: Manifest, aliases: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    yield "name", manifest.name.tool_id
    yield "namespace", manifest.name.namespace
    yield "title", manifest.title
    yield "description", manifest.text("description")
    yield "search_hint", manifest.text("search_hint")
    yield "tags", " ".join(manifest.tags)
    yield "capabilities", " ".join(manifest.items("capability_refs"))
    yield "aliases", " ".join(aliases)


def _schema_words(schema: Any) -> list[str]:
    """Return the names of the top-level properties, in order."""
    properties = schema.get("properties", {}) if isinstance(schema, Mapping) else {}
    names = properties if isinstance(properties, Mapping) else ()
    return [str(name).replace("_", " ") for name in names][:_SCHEMA_NAMES]


def _stem(word: str) -> str:
    """Return a simple stem that joins plural and verb forms."""
    for ending, replacement in (("ies", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", "")):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            word = word[: len(word) - len(ending)] + replacement
            break
    return word.removesuffix("e") if len(word) > 4 else word
