"""The words and token counts of the installed vocabularies."""

from __future__ import annotations

from services.registry.adapters.language.vocabularies import Vocabularies, word_ranks


def test_the_known_words_are_plain_and_of_three_letters_or_more() -> None:
    ranks = word_ranks()
    assert ranks["the"] < ranks["convert"]
    assert len(ranks) > 10_000
    assert all(len(word) > 2 and word.isascii() and word.isalpha() and word.islower() for word in ranks)


def test_special_tokens_in_a_text_count_as_text() -> None:
    plain, special = Vocabularies().count(["hello", "<|endoftext|>"], "cl100k_base")
    assert plain == 1
    assert special > 1
