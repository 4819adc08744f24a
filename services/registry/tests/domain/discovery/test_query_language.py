"""Queries in English are recognized."""

from __future__ import annotations

import pytest

from services.registry.domain.discovery.query_language import is_english
from services.registry.tests.domain.discovery import discovery_corpus


@pytest.mark.parametrize(
    "text",
    [
        "Zeit zwischen Zeitzonen umrechnen",
        "Wie wird das Wetter morgen in Berlin",
        "schicke eine E-Mail an meinen Chef",
        "convertir l'heure entre les fuseaux horaires",
        "envoyer un message à mon équipe",
        "convierte la hora entre zonas horarias",
        "envía un correo a mi jefe",
        "タイムゾーン間で時刻を変換する",
        "преобразовать время",
    ],
)
def test_other_languages(text: str) -> None:
    assert not is_english(text)


def test_every_query_of_the_corpus_is_english() -> None:
    data = discovery_corpus.load()
    queries = [query["query"] for part in ("paraphrases", "utterances", "keywords") for query in data[part]]
    assert [query for query in queries if not is_english(query)] == []


@pytest.mark.parametrize("text", ["", "send email", "résumé", "la carte", "42", "git rebase"])
def test_texts_without_a_hint_count_as_english_unless_a_function_word_says_otherwise(text: str) -> None:
    assert is_english(text) is (text != "la carte")
