"""Checksums and ranges that tell real numbers from look-alikes."""

from __future__ import annotations

import math
from collections import Counter

_DOUBLED = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)

# First and last prefix of a range, and how long its numbers are.
_CARDS: tuple[tuple[str, str, frozenset[int]], ...] = (
    ("4", "4", frozenset({13, 16, 19})),
    ("51", "55", frozenset({16})),
    ("2221", "2720", frozenset({16})),
    ("34", "34", frozenset({15})),
    ("37", "37", frozenset({15})),
    ("6011", "6011", frozenset({16, 19})),
    ("644", "649", frozenset({16, 19})),
    ("65", "65", frozenset({16, 19})),
    ("62", "62", frozenset({16, 17, 18, 19})),
    ("3528", "3589", frozenset({16, 19})),
    ("300", "305", frozenset({14})),
    ("36", "36", frozenset({14})),
    ("38", "39", frozenset({14})),
    ("2200", "2204", frozenset({16, 19})),
    ("5018", "5018", frozenset({12, 13, 14, 15, 16, 18, 19})),
    ("5020", "5020", frozenset({12, 13, 14, 15, 16, 18, 19})),
    ("5038", "5038", frozenset({12, 13, 14, 15, 16, 18, 19})),
    ("6304", "6304", frozenset({12, 13, 14, 15, 16, 18, 19})),
    ("6759", "6763", frozenset({12, 13, 14, 15, 16, 18, 19})),
)

# Length of an IBAN, by country.
_IBAN_LENGTHS = {
    country: length
    for length, countries in {
        15: "NO",
        16: "BE",
        18: "DK FI FO GL NL SD",
        19: "MK SI",
        20: "AT BA EE KZ LT LU MN XK",
        21: "CH HR LI LV",
        22: "BG BH CR DE GB GE IE ME RS VA",
        23: "AE GI IL IQ OM SO TL",
        24: "AD CZ ES MD PK RO SA SE SK TN VG",
        25: "LY PT ST",
        26: "IS TR",
        27: "BI DJ FR GR IT MC MR SM",
        28: "AL AZ BY CY DO GT HU LB NI PL SV",
        29: "BR EG PS QA UA",
        30: "JO KW MU YE",
        31: "MT SC",
        32: "LC",
        33: "RU",
    }.items()
    for country in countries.split()
}


def luhn(digits: str) -> bool:
    """Return whether the last digit is the check digit of the others (ISO/IEC 7812-1)."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = ord(digit) - 48
        total += _DOUBLED[value] if place & 1 else value
    return total % 10 == 0


def is_card(digits: str) -> bool:
    """Return whether the digits are a payment card number: a known range, its length, and the check digit."""
    length = len(digits)
    if not 12 <= length <= 19 or len(set(digits)) == 1:
        return False
    known = any(length in lengths and low <= digits[: len(low)] <= high for low, high, lengths in _CARDS)
    return known and luhn(digits)


def iban_length(country: str) -> int:
    """Return the length of an IBAN of this country; 0 for a country without."""
    return _IBAN_LENGTHS.get(country, 0)


def is_iban(compact: str) -> bool:
    """Return whether upper-case letters and digits without spaces are an IBAN: country, length and ISO 7064 check."""
    if iban_length(compact[:2]) != len(compact) or not compact[2:4].isdigit():
        return False
    turned = compact[4:] + compact[:4]
    return int("".join(str(int(character, 36)) for character in turned)) % 97 == 1


def is_ssn(digits: str) -> bool:
    """Return whether nine digits can be a US social security number: the ranges that were never issued are not."""
    area, group, serial = digits[:3], digits[3:5], digits[5:]
    return area not in ("000", "666") and area < "900" and group != "00" and serial != "0000"


def entropy(text: str) -> float:
    """Return the Shannon entropy of the characters, in bits for each."""
    size = len(text)
    return -sum(count / size * math.log2(count / size) for count in Counter(text).values()) if size else 0.0
