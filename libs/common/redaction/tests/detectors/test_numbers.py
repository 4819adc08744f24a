"""Numbers that keep an inner rule, and those that only look like it."""

from __future__ import annotations

import pytest

from libs.common.redaction.detectors.checksums import entropy, is_card, is_iban, is_ssn, luhn
from libs.common.redaction.scanner import Scanner


@pytest.mark.parametrize(
    "digits", ["4111111111111111", "378282246310005", "6011111111111117", "30569309025904", "79927398713"]
)
def test_a_check_digit_is_checked(digits: str) -> None:
    assert luhn(digits)
    assert not any(luhn(digits[:-1] + other) for other in "0123456789" if other != digits[-1])


@pytest.mark.parametrize(
    "digits",
    [
        "4111111111111112",
        "7992739871300000",
        "411111111111111",
        "0000000000000000",
        "4444444444444444",
        "1234567812345670",
    ],
)
def test_a_card_needs_a_known_range_a_length_and_its_check_digit(digits: str) -> None:
    assert not is_card(digits)


@pytest.mark.parametrize("iban", ["DE89370400440532013000", "NO9386011117947", "MT84MALT011000012345MTLCAST001S"])
def test_an_iban_has_its_countrys_length_and_its_check(iban: str) -> None:
    assert is_iban(iban)
    assert not is_iban(iban[:-1])
    assert not is_iban(iban[:-1] + ("1" if iban[-1] != "1" else "2"))
    assert not is_iban("XX" + iban[2:])


@pytest.mark.parametrize("digits", ["000123456", "666123456", "900123456", "123004567", "123450000"])
def test_a_social_security_number_that_was_never_issued_is_none(digits: str) -> None:
    assert not is_ssn(digits)
    assert is_ssn("536228467")


def test_entropy_tells_a_word_from_a_key() -> None:
    assert entropy("aaaa") == 0
    assert entropy("") == 0
    assert entropy("x7Yz8Wq2LmN4pR6t") > entropy("hellohellohello1")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("4111 1111 1111 1111 123", "[redacted:payment_card] 123"),
        ("4111111111111111 5555555555554444", "[redacted:payment_card] [redacted:payment_card]"),
        ("pay ４１１１１１１１１１１１１１１１ now", "pay [redacted:payment_card] now"),
        ("x4111111111111111", "x4111111111111111"),
        ("4111111111111111.5", "4111111111111111.5"),
        ("12-4111111111111111", "12-4111111111111111"),
        ("id 41111111-1111-4111-8111-111111111111", "id 41111111-1111-4111-8111-111111111111"),
    ],
)
def test_a_number_is_found_beside_others_and_not_inside_something_longer(text: str, shown: str) -> None:
    assert Scanner().text(text).value == shown
