"""Finds payment cards, IBANs, social security numbers and telephone numbers.

Every expression is bounded and its repetitions are possessive, so one attempt reads a few dozen characters at most.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from libs.common.redaction.detectors.checksums import iban_length, is_card, is_iban, is_ssn
from libs.common.redaction.detectors.spans import Span, stands_alone

CARD, IBAN, SSN, PHONE = "payment_card", "iban", "us_ssn", "phone"

# Everything begins with a digit or a plus, so that text without digits is skipped at memory speed. The entries: a long
# run, a plus, an IBAN's bank letters, groups of digits. A date (2026-01-15) is none of them.
_HINT = re.compile(
    r"[0-9+](?<![0-9]{2})(?:(?<=\+)\(?[0-9]|[0-9]{11}|[0-9] ?[A-Za-z]{4} ?[0-9]{2}|[0-9]{3} [0-9]{4} [0-9]"
    r"|[0-9]{1,3}[ .)/-]{1,2}[0-9]{2,6}[ ./-][0-9]{3}|[0-9]{3}(?:[\t\n]|\r\n|  )[0-9]{4,6}(?:[\t\n]|\r\n|  )[0-9]{4}"
    r"|(?<=0)0[1-9][0-9]{0,2}[ ./]{1,2}[0-9])"
)

_CARD_RUN = re.compile(r"[0-9](?:[ -]?[0-9]){11,127}+")
# The groups of a card's digits: by four, or as on an Amex or Diners card.
_CARD_GROUPS = re.compile(r"[0-9]{4}([ -])(?:[0-9]{4}\1[0-9]{4}(?:\1[0-9]{1,4}){0,2}|[0-9]{6}\1[0-9]{4,5})\Z")
# Groups further apart, as in tables and forms. A column of numbers of which some would make a card is not one.
_CARD_SPREAD = re.compile(
    r"(?<![0-9])(?<![0-9][\t\n])[0-9]{4}(\.|\t|\r?\n|  )"
    r"(?:[0-9]{4}\1[0-9]{4}\1[0-9]{4}|[0-9]{6}\1[0-9]{4,5})(?![0-9])(?!\1[0-9]{4}(?![0-9]))"
)
_CARD_LABEL = re.compile(r"(?<![a-z0-9])(?:card|cc|pan|visa|mastercard|amex)(?:_(?:number|num|no|nr))?_\Z", re.I)
_LONGEST_LABEL = 20
_GROUP = re.compile(r"[0-9]+")
_SHORTEST_CARD = 12
_IBAN_HEAD = re.compile(r"[A-Za-z]{2}[0-9]{2}(?=[ -]?[A-Za-z0-9])")
_SSN_GROUPS = re.compile(r"[0-9]{3}([- ])[0-9]{2}\1[0-9]{4}")
_NINE = re.compile(r"[0-9]{9}(?![0-9])")
_INTERNATIONAL = re.compile(r"\+\(?[1-9](?:[ ().\-/]{0,3}[0-9]){7,14}+")
# With the zeros that many countries dial for the plus, before a country code.
_DIALLED = re.compile(
    r"(?<![0-9])(?<![0-9][ .-])00(?:1|7|2[07]|3[0-469]|4[013-9]|5[1-8]|6[0-6]|8[1246]|9[0-58]"
    r"|(?:2[1-689]|3[578]|42|5[09]|6[7-9]|8[05]|9[679])[0-9])"
    r"[ ./]{1,2}[0-9](?:[ ().\-/]{0,3}[0-9]){5,11}+"
)
_DECIMAL = re.compile(r"\+[0-9]{1,3}\.[0-9]+\Z")
_AMERICAN = re.compile(r"(?:1[ .-])?(?:\([2-9][0-9]{2}\) ?|[2-9][0-9]{2}([ .-]))[2-9][0-9]{2}[ .-][0-9]{4}")
_NATIONAL = re.compile(r"\(?[0-9](?:[ ().\-/]{0,3}[0-9]){6,13}+")
# Words between the announcement and its number.
_SAID = r"(?: {1,2}(?:numbers?|num|no|nr|is|was|(?:me|us|him|her|them)(?: (?:at|on|under))?)(?![a-z])){0,4}"
_PHONE_WORD = re.compile(
    r"(?<![a-z])(?:(?:tele|cell|smart)?phone|mobile|cell|tel|fax|whatsapp|handy|call|sms)[a-z]{0,5}"
    + _SAID
    + r"[ .:#=\"'-]{1,4}",
    re.I,
)
_DATE = re.compile(r"(?:19|20)[0-9]{2}([-/.])[0-9]{2}\1[0-9]{2}\Z")
_SSN_WORD = re.compile(rf"(?:ssn|social security)(?:{_SAID}|[a-z ]{{0,8}})[ .:#=\"'-]{{1,4}}", re.I)
_WORDS = ("ssn", "social security", "phone", "mobile", "cell", "tel", "fax", "whatsapp", "handy", "call", "sms")
_ANNOUNCED = re.compile("(?:" + "|".join(_WORDS) + r")[a-z ]{0,24}[ .:#=\"'-]{1,6}\(?[0-9]")
_SEVEN_DIGITS = re.compile(r"[0-9](?<![0-9]{2})(?:[ ().\-/]{0,3}[0-9]){6}")


def _is_announced(text: str, lowered: str) -> bool:
    if _SEVEN_DIGITS.search(text) is None or not any(word in lowered for word in _WORDS):
        return False
    return _ANNOUNCED.search(lowered) is not None


def find_numbers(text: str, lowered: str) -> Iterator[Span]:
    """Yield the numbers in a text, the surest first."""
    if _HINT.search(text):
        yield from _ibans(text)
        yield from _cards(text)
        yield from _social_security_numbers(text)
        yield from _telephones(text)
    if _is_announced(text, lowered):
        yield from _announced(text)


def _cards(text: str) -> Iterator[Span]:
    for run in _CARD_RUN.finditer(text):
        if _is_written_card(run.group()) and (stands_alone(text, *run.span()) or _is_labelled(text, *run.span())):
            yield Span(run.start(), run.end(), CARD)
        elif not run.group().isdigit():
            yield from _cards_within(text, run.start(), run.group())
    for spread in _CARD_SPREAD.finditer(text):
        if is_card(spread.group().replace(spread.group(1), "")) and stands_alone(text, *spread.span()):
            yield Span(spread.start(), spread.end(), CARD)


def _is_labelled(text: str, start: int, end: int) -> bool:
    """Return whether a name such as `card_4111...` announces a card; `order_4111...` is an identifier."""
    label = _CARD_LABEL.search(text, max(0, start - _LONGEST_LABEL), start)
    return label is not None and stands_alone(text[start : end + 2], 0, end - start)


def _cards_within(text: str, start: int, run: str) -> Iterator[Span]:
    """Find a card beside another number, such as its code or date, by trying the groups of digits in turn."""
    groups = [group.span() for group in _GROUP.finditer(run)]
    for first, (begin, _) in enumerate(groups):
        for _, end in groups[first : first + 5]:
            found = run[begin:end]
            if (
                len(found) >= _SHORTEST_CARD
                and _is_written_card(found)
                and stands_alone(text, start + begin, start + end)
            ):
                yield Span(start + begin, start + end, CARD)


def _is_written_card(found: str) -> bool:
    digits = found.replace(" ", "").replace("-", "")
    return (len(found) == len(digits) or _CARD_GROUPS.match(found) is not None) and is_card(digits)


def _ibans(text: str) -> Iterator[Span]:
    for head in _IBAN_HEAD.finditer(text):
        start = head.start()
        length = iban_length(text[start : start + 2].upper())
        if not length or (start and (text[start - 1].isalnum() or text[start - 1] == "_")):
            continue
        end = _end_of_iban(text, start, length)
        if end and is_iban(_bare(text[start:end]).upper()):
            yield Span(start, end, IBAN)


def _end_of_iban(text: str, start: int, length: int) -> int:
    """Return the end of so many letters and digits, without gaps or in groups of four; 0 if there are fewer."""
    compact = text[start : start + length]
    spaced = text[start : start + length + (length - 1) // 4]
    for written in (compact, spaced):
        end = start + len(written)
        if end < len(text) and (text[end].isalnum() or text[end] == "_"):
            continue
        bare = _bare(written)
        if len(bare) == length and bare.isalnum() and bare.isascii() and (written is compact or _by_four(written)):
            return end
    return 0


def _by_four(written: str) -> bool:
    gap = written[4]
    return gap in " -" and all((character == gap) == (place % 5 == 4) for place, character in enumerate(written))


def _bare(written: str) -> str:
    return written.replace(" ", "").replace("-", "")


def _social_security_numbers(text: str) -> Iterator[Span]:
    for found in _SSN_GROUPS.finditer(text):
        if is_ssn(found.group().replace("-", "").replace(" ", "")) and stands_alone(text, *found.span()):
            yield Span(found.start(), found.end(), SSN)


def _telephones(text: str) -> Iterator[Span]:
    for found in _INTERNATIONAL.finditer(text):
        before = text[found.start() - 1 : found.start()] if found.start() else ""
        after = text[found.end() : found.end() + 1]
        inside = before.isalnum() or before in ("_", "+", ")") or after.isalnum() or after == "_"
        if not inside and not _DECIMAL.match(found.group()):
            yield Span(found.start(), found.end(), PHONE)
    for pattern in (_DIALLED, _AMERICAN):
        yield from _standing_alone(text, pattern)


def _standing_alone(text: str, pattern: re.Pattern[str]) -> Iterator[Span]:
    for found in pattern.finditer(text):
        if stands_alone(text, *found.span()):
            yield Span(found.start(), found.end(), PHONE)


def _announced(text: str) -> Iterator[Span]:
    """Yield numbers that only the word before them makes recognizable."""
    for word in _SSN_WORD.finditer(text):
        found = _NINE.match(text, word.end())
        if found and is_ssn(found.group()):
            yield Span(found.start(), found.end(), SSN)
    for word in _PHONE_WORD.finditer(text):
        found = _NATIONAL.match(text, word.end())
        if found and _sounds_like_a_telephone(text, found):
            yield Span(found.start(), found.end(), PHONE)


def _sounds_like_a_telephone(text: str, found: re.Match[str]) -> bool:
    after = text[found.end() : found.end() + 1]
    return not (after.isalnum() or after == "_") and _DATE.match(found.group()) is None
