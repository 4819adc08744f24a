"""Decides quickly whether a text, or the JSON in it, may contain anything sensitive. False is certain.

Two expressions in a linear-time engine (the one behind JSON Schema's `pattern`), because nearly every text is harmless:
under a microsecond for 200 bytes. The first looks for the words and formats alone and takes 3 ns for each character,
whatever the text. The second also looks at what surrounds a word. With its many bounded repetitions some texts take it
2,000 ns for each character, so it reads short texts only. Neither may miss what the finders find; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable

import jsonschema_rs

# Field names that announce a secret, and those that announce digits: before a colon, an equals sign or a verb.
_STEMS = "pass|pwd|secret|token|key|auth|cred|cook|sig"
_DIGIT_STEMS = "ssn|social|card|ccn|cvv|cvc|code|pin|iban|account|phone|mobile|birth|dob|tax|pan"
_REST_OF_NAME = r"""[a-z0-9_. -]{0,32}\\{0,3}["']?"""
_NAMED = rf"(?:{_STEMS}){_REST_OF_NAME}(?:\s{{0,3}}[:=]|\s{{1,3}}(?:is|was)\s)"
_DIGITS_NAMED = (
    rf"(?:{_DIGIT_STEMS}){_REST_OF_NAME}(?:\s{{0,3}}(?:=>|[:=]{{1,2}})\s{{0,3}}|\s{{1,3}}(?:is|was)\s{{1,2}})"
    r"""\\{0,3}["'`]?\(?\+?[0-9]"""
)
_SPELLED_OUT = rf'"(?:name|key|header|field)":"[^"]{{0,128}}(?:{_STEMS}|{_DIGIT_STEMS})'
# A list of a name and its value, and an option with its value in the next element.
_PAIRED = rf"""(?:{_STEMS}|{_DIGIT_STEMS})[^"',]{{0,64}}\\{{0,3}}["']\s{{0,2}},"""
_ANNOUNCING = "ssn|social security|phone|mobile|cell|tel|fax|whatsapp|handy|call|sms"
_ANNOUNCED = (
    rf"(?:{_ANNOUNCING})"
    r"""[a-z ]{0,30}[ .:#="'-]{1,6}\(?[0-9]"""
)
_OPTION = rf"--[a-z0-9-]{{0,34}}(?:{_STEMS})[a-z-]{{0,12}}\s"
# Gaps between groups of digits, also as JSON escapes.
_APART = r"(?:[\t\n]|\r\n|  |(?:\\r)?\\[tn])"
_KEYS = (
    r"@|(?:^|[^\w-]|\\[tnr])-[uU]|--(?:proxy-)?user|eyJ"
    r"|-----BEGIN |-----END |AKIA|ASIA|AIza|SG\.|ya29\.|slack\.com/services/|gh[pousr]_|github_pat_"
    r"|_live_|_test_|whsec_|npm_"
    r"|dop_v1_|shpat_|xox[abeoprs][-.]|xapp-|GOCSPX-|glpat-|pypi-|sk-|hf_"
    r"|(?:^|[^A-Za-z0-9/+=_-]|\\[tnr])[A-Za-z0-9/+]{40}(?:[^A-Za-z0-9/+=_-]|$)"
)
# Version 4 and version 6.
_ADDRESSES = r"[0-9]\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]|[0-9A-Fa-f]::|::[0-9A-Fa-f]|(?:[0-9A-Fa-f]{1,4}:){5}"
# A long run, a plus, an IBAN's bank letters, groups of digits. A date (2026-01-15) is none of them.
_NUMBERS = (
    r"[0-9]{12}|\+\(?[0-9]|[0-9]{2} ?[A-Za-z]{4} ?[0-9]{2}|[0-9]{4} [0-9]{4} [0-9]"
    rf"|[0-9]{{2,4}}[ .)/-]{{1,2}}[0-9]{{2,6}}[ ./-][0-9]{{3}}|[0-9]{{4}}{_APART}[0-9]{{4,6}}{_APART}[0-9]{{4}}"
    r"|00[1-9][0-9]{0,2}[ ./]{1,2}[0-9]"
)

_FORMATS = "|".join([_KEYS, _NUMBERS, _ADDRESSES])
_WORDS = f"(?i:bearer|{_STEMS}|{_DIGIT_STEMS}|{_ANNOUNCING})|{_FORMATS}"
_WORDS_IN_PLACE = f"(?i:bearer|{_NAMED}|{_DIGITS_NAMED}|{_SPELLED_OUT}|{_PAIRED}|{_ANNOUNCED}|{_OPTION})|{_FORMATS}"
_LONGEST_REFINED = 1024


def _absence_of(pattern: str) -> Callable[[str], bool]:
    schema = {"not": {"pattern": pattern}}
    return jsonschema_rs.Draft202012Validator(schema, pattern_options=jsonschema_rs.RegexOptions()).is_valid


_has_no_words, _has_none_in_place = _absence_of(_WORDS), _absence_of(_WORDS_IN_PLACE)


def suspects(text: str) -> bool:
    """Return whether the built-in rules may find anything in the text."""
    try:
        return not _has_no_words(text) and (len(text) > _LONGEST_REFINED or not _has_none_in_place(text))
    except ValueError:
        # Half of a surrogate pair is not valid text; the full scan decides.
        return True
