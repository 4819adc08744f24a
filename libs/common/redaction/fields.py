"""Field names that announce a sensitive value, however spelled: `apiKey`, `API-KEY` and `user.api_key` are one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from libs.common.redaction.detectors.credentials import PASSWORD, SECRET, SECURITY_CODE, is_placeholder, looks_secret
from libs.common.redaction.detectors.numbers import CARD, IBAN, PHONE, SSN
from libs.common.redaction.lookalikes import plain_text
from libs.common.runtime.bounded_cache import BoundedCache

Verdict = Callable[[Any], bool]
"""Returns whether a value is what its field's name announces."""

PERSONAL = "personal"
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_A-Za-z]+")
_BEGINS = re.compile(r"\(?\+?[0-9][ .)/-]{0,2}[0-9][ .)/-]{0,2}[0-9]")
_LONGEST_NAME, _REMEMBERED = 128, 4096


def _present(value: Any) -> bool:
    """Any value that discloses something: not an empty text, a flag or null."""
    if isinstance(value, str):
        return len(value) > 1 and not is_placeholder(value)
    return (isinstance(value, int | float) and not isinstance(value, bool)) or (
        isinstance(value, dict | list) and bool(value)
    )


def _anything(value: Any) -> bool:
    return value is not None and value != ""


def _made(value: Any) -> bool:
    return isinstance(value, str) and looks_secret(value)


def _token(value: Any) -> bool:
    """A secret token has digits in it or is long; the tokens of a language are words and counts."""
    if isinstance(value, list):
        return any(_token(item) for item in value)
    return isinstance(value, str) and len(value) >= 8 and (looks_secret(value) or any(map(str.isdigit, value)))


def _digits(low: int, high: int, *, first: bool = True) -> Verdict:
    """So many digits, with one of them near the beginning, and not much else."""

    def verdict(value: Any) -> bool:
        if not isinstance(value, str | int) or isinstance(value, bool):
            return False
        text = str(value)
        begins = not first or _BEGINS.match(text) is not None
        return begins and low <= sum(map(str.isdigit, text)) <= high and len(text) <= 2 * high and "@" not in text

    return verdict


# The end of a name decides: `user_password` is one, `password_policy` is not.
_ENDINGS: dict[str, tuple[str, Verdict]] = {
    **dict.fromkeys(("password", "passwd", "passphrase", "pwd", "passcode"), (PASSWORD, _present)),
    **dict.fromkeys(
        (
            "secret",
            "clientsecret",
            "apikey",
            "apisecret",
            "secretkey",
            "secretaccesskey",
            "accesskey",
            "accountkey",
            "privatekey",
            "signingkey",
            "encryptionkey",
            "masterkey",
            "sharedkey",
            "authkey",
            "authorization",
            "authheader",
            "credential",
            "cookie",
            "accesstoken",
            "refreshtoken",
            "idtoken",
            "authtoken",
            "bearertoken",
            "sessiontoken",
            "csrftoken",
        ),
        (SECRET, _present),
    ),
    # A count is a number, not a secret.
    "pass": (PASSWORD, lambda value: isinstance(value, str) and _present(value)),
    "token": (SECRET, _token),
    **dict.fromkeys(("key", "signature", "sig", "auth"), (SECRET, _made)),
    **dict.fromkeys(("ssn", "socialsecuritynumber", "socialsecurity"), (SSN, _digits(4, 9))),
    **dict.fromkeys(("cardnumber", "cardno", "ccnumber", "creditcard", "debitcard", "pan"), (CARD, _digits(8, 19))),
    **dict.fromkeys(
        ("cvv", "cvv2", "cvc", "securitycode", "pin", "pincode", "cardpin"), (SECURITY_CODE, _digits(3, 8))
    ),
    **dict.fromkeys(("iban", "accountnumber", "bankaccount"), (IBAN, _digits(6, 30))),
    **dict.fromkeys(
        ("phone", "phonenumber", "mobile", "mobilenumber", "telephone", "cellphone"), (PHONE, _digits(7, 15))
    ),
    **dict.fromkeys(("dateofbirth", "dob", "birthdate", "taxid"), (PERSONAL, _digits(4, 20))),
    **dict.fromkeys(("passportnumber", "passportno"), (PERSONAL, _digits(4, 20, first=False))),
}
# Names that end like a secret and are none.
_HARMLESS = frozenset(
    {
        "pagetoken",
        "nexttoken",
        "continuationtoken",
        "resumetoken",
        "synctoken",
        "publickey",
        "publishablekey",
        "primarykey",
        "foreignkey",
        "partitionkey",
        "sortkey",
        "cachekey",
        "idempotencykey",
    }
)


class FieldNames:
    """Classifies field names, and caches the result for each."""

    def __init__(self, added: Iterable[str] = ()) -> None:
        self._added = frozenset("".join(words(name)) for name in added)
        self._known: BoundedCache[str, tuple[str, Verdict] | None] = BoundedCache(_REMEMBERED)

    def means(self, name: str, value: Any) -> str:
        """Return the kind of a field's value; empty if it is not sensitive."""
        if name in self._known:
            meaning = self._known[name]
        else:
            meaning = self._classify(name)
            if len(name) <= _LONGEST_NAME:
                self._known.put(name, meaning)
        return meaning[0] if meaning is not None and meaning[1](value) else ""

    def _classify(self, name: str) -> tuple[str, Verdict] | None:
        parts = words(name[-_LONGEST_NAME:])
        if parts and len(parts[-1]) > 3 and parts[-1].endswith("s") and not parts[-1].endswith("ss"):
            parts = [*parts[:-1], parts[-1][:-1]]
        endings = ["".join(parts[place:]) for place in range(len(parts))]
        if any(ending in self._added for ending in endings):
            return ("field", _anything)
        if any(ending in _HARMLESS for ending in endings):
            return None
        for ending in endings:
            if ending in _ENDINGS:
                return _ENDINGS[ending]
        # Without separators, the beginning of the last word is unknown.
        joined = endings[0] if endings else ""
        return next((_ENDINGS[end] for end in _JOINED if joined.endswith(end)), None)


_JOINED = (
    "password",
    "passwd",
    "passphrase",
    "apikey",
    "secretkey",
    "clientsecret",
    "accesstoken",
    "cardnumber",
    "privatekey",
)


def words(name: str) -> list[str]:
    """Return the words of a name in lower case: by separators, by case, and digits by themselves. Look-alike letters
    count as Latin ones, and invisible characters do not count.
    """
    return [word.lower() for word in _WORDS.findall(plain_text(name).text)]
