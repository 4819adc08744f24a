"""The first look: whether a text, or the JSON that it is, could hold anything sensitive at all. A no is certain.

One expression in an engine that reads a text once and never goes back (the one behind JSON Schema's `pattern`), because nearly every
text is innocent and this is all that it costs: under a microsecond for 200 bytes. It is coarser than the finders and must never be
finer; a test holds the two against each other.
"""

from __future__ import annotations

import jsonschema_rs

# Names that tell, and those that only tell of digits. In use: before a colon, an equals sign or a verb.
_STEMS = "pass|pwd|secret|token|key|auth|cred|cook|sig"
_DIGIT_STEMS = "ssn|social|card|ccn|cvv|cvc|code|pin|iban|account|phone|mobile|birth|dob|tax|pan"
_REST_OF_NAME = r"""[a-z0-9_. -]{0,32}\\{0,3}["']?"""
_NAMED = rf"(?:{_STEMS}){_REST_OF_NAME}(?:\s{{0,3}}[:=]|\s{{1,3}}(?:is|was)\s)"
_DIGITS_NAMED = (
    rf"(?:{_DIGIT_STEMS}){_REST_OF_NAME}(?:\s{{0,3}}(?:=>|[:=]{{1,2}})\s{{0,3}}|\s{{1,3}}(?:is|was)\s{{1,2}})"
    r"""\\{0,3}["'`]?\(?\+?[0-9]"""
)
_SPELLED_OUT = rf'"(?:name|key|header|field)":"[^"]{{0,128}}(?:{_STEMS}|{_DIGIT_STEMS})'
_ANNOUNCED = (
    "(?:ssn|social security|phone|mobile|cell|tel|fax|whatsapp|handy|call|sms)"
    r"""[a-z ]{0,30}[ .:#="'-]{1,6}\(?[0-9]"""
)
_OPTION = rf"--[a-z0-9-]{{0,34}}(?:{_STEMS})[a-z-]{{0,12}}\s"
# Between groups of digits that lie apart, also as JSON writes it.
_APART = r"(?:[\t\n]|\r\n|  |(?:\\r)?\\[tn])"
_KEYS = (
    r"@| -u |eyJ|-----BEGIN |-----END |AKIA|ASIA|AIza|SG\.|ya29\.|slack\.com/services/|gh[pousr]_|github_pat_|_live_|_test_|whsec_|npm_"
    r"|dop_v1_|shpat_|xox[abeoprs][-.]|xapp-|GOCSPX-|glpat-|pypi-|sk-"
)
# A long run, a plus, an IBAN's bank letters, groups of digits. A date (2026-01-15) is none of them.
_NUMBERS = (
    r"[0-9]{12}|\+\(?[0-9]|[0-9]{2} ?[A-Za-z]{4} ?[0-9]{2}|[0-9]{4} [0-9]{4} [0-9]"
    rf"|[0-9]{{2,4}}[ .)/-]{{1,2}}[0-9]{{2,6}}[ ./-][0-9]{{3}}|[0-9]{{4}}{_APART}[0-9]{{4,6}}{_APART}[0-9]{{4}}"
    r"|00[1-9][0-9]{0,2}[ ./]{1,2}[0-9]"
)

_ANY = "|".join(
    [
        f"(?i:bearer|{_NAMED}|{_DIGITS_NAMED}|{_SPELLED_OUT}|{_ANNOUNCED}|{_OPTION})",
        _KEYS,
        _NUMBERS,
    ]
)
_innocent = jsonschema_rs.Draft202012Validator(
    {"not": {"pattern": _ANY}}, pattern_options=jsonschema_rs.RegexOptions()
).is_valid


def suspects(text: str) -> bool:
    """Say whether the built-in rules could find anything in the text."""
    try:
        return not _innocent(text)
    except ValueError:
        # Half of a surrogate pair is no text; whoever looks closer decides.
        return True
