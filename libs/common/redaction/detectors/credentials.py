"""Finds secrets: tokens and keys by their format, and values after a telling word.

Every expression is bounded and anchored at a literal that was found first, so a text is read a few times at most.
"""

from __future__ import annotations

import base64
import binascii
import re
import string
from collections.abc import Iterator

from libs.common.redaction.detectors.checksums import entropy
from libs.common.redaction.detectors.spans import Span, positions

JWT, PRIVATE_KEY, BEARER, PASSWORD, SECRET = "jwt", "private_key", "bearer", "password", "secret"
CREDENTIALS, SECURITY_CODE = "credentials", "security_code"

_WORD = r"(?![A-Za-z0-9_-])"
# Prefix, kind, and what must follow. The prefix is searched literally before anything else is tried.
_KEYS: tuple[tuple[str, str, re.Pattern[str]], ...] = tuple(
    (beginning, kind, re.compile(re.escape(beginning) + rest))
    for beginning, kind, rest in (
        ("AKIA", "aws_key", r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
        ("ASIA", "aws_key", r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
        ("ghp_", "github_token", r"[A-Za-z0-9]{36,251}+" + _WORD),
        ("gho_", "github_token", r"[A-Za-z0-9]{36,251}+" + _WORD),
        ("ghu_", "github_token", r"[A-Za-z0-9]{36,251}+" + _WORD),
        ("ghs_", "github_token", r"[A-Za-z0-9]{36,251}+" + _WORD),
        ("ghr_", "github_token", r"[A-Za-z0-9]{36,251}+" + _WORD),
        ("github_pat_", "github_token", r"[A-Za-z0-9_]{40,251}+" + _WORD),
        ("xox", "slack_token", r"[abeoprs](?:\.[a-z]{4})?-[A-Za-z0-9-]{10,250}+"),
        ("xapp-", "slack_token", r"[0-9]-[A-Za-z0-9-]{10,250}+"),
        ("hooks.slack.com/services/", "slack_token", r"T[A-Z0-9]{5,12}/B[A-Z0-9]{5,12}/[A-Za-z0-9]{16,40}+"),
        ("sk_live_", "stripe_key", r"[A-Za-z0-9]{16,247}+" + _WORD),
        ("sk_test_", "stripe_key", r"[A-Za-z0-9]{16,247}+" + _WORD),
        ("rk_live_", "stripe_key", r"[A-Za-z0-9]{16,247}+" + _WORD),
        ("rk_test_", "stripe_key", r"[A-Za-z0-9]{16,247}+" + _WORD),
        ("whsec_", "stripe_key", r"[A-Za-z0-9+/=]{24,128}+"),
        ("AIza", "google_key", r"[A-Za-z0-9_-]{35}" + _WORD),
        ("ya29.", "google_key", r"[A-Za-z0-9_-]{20,400}+"),
        ("GOCSPX-", "google_key", r"[A-Za-z0-9_-]{28}" + _WORD),
        ("glpat-", "vendor_key", r"[A-Za-z0-9_-]{20,64}+"),
        ("npm_", "vendor_key", r"[A-Za-z0-9]{36}" + _WORD),
        ("pypi-", "vendor_key", r"[A-Za-z0-9_-]{50,400}+"),
        ("SG.", "vendor_key", r"[A-Za-z0-9_-]{16,32}+\.[A-Za-z0-9_-]{30,64}+"),
        ("sk-", "vendor_key", r"(?:[a-z]{3,8}[0-9]{0,2}-){0,2}(?=[A-Za-z_-]{0,64}[0-9])[A-Za-z0-9_-]{32,250}+"),
        ("dop_v1_", "vendor_key", r"[a-f0-9]{64}" + _WORD),
        ("shpat_", "vendor_key", r"[a-fA-F0-9]{32}" + _WORD),
        ("hf_", "vendor_key", r"[A-Za-z0-9]{24,64}+" + _WORD),
    )
)
_JWT = re.compile(r"eyJ[A-Za-z0-9_-]{10,4096}+\.eyJ[A-Za-z0-9_-]{4,16384}+(?:\.[A-Za-z0-9_-]{0,4096}+)?")
_ENCODED = re.compile(r"[A-Za-z0-9_-]+")
_PEM = re.compile(r"-----(BEGIN|END) (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_PEM_END = "-----END "
# The lines of a key, with line ends also as JSON escapes.
_PEM_BODY = string.ascii_letters + string.digits + "+/=\\ \t\r\n"
_BEARER = re.compile(r"\b(bearer|basic)[ :]{1,2}([A-Za-z0-9._~+/-]{8,4096}+={0,2})", re.I)
_AUTHORIZATION = re.compile(r"authorization[\"']?\s{0,2}[:=]\s{0,2}[\"']?\Z", re.I)
_URL_LOGIN = re.compile(r"://([^\s/:@\"'<>]{0,128}):([^\s/@\"'<>]{1,256})@(?=[\w.\[-])")
# `-u user:pw`, `-uuser:pw`, `--user=user:pw`.
_COMMAND_LOGIN = re.compile(
    r"(?<![\w-])(?:-[uU]|--(?:proxy-)?user(?=[\s=]))[ \t=]{0,3}[\"']?([\w.@+\\-]{1,64}+:[^\s\"'`]{1,128})"
)
_LOGIN = re.compile(r"([\w.@+\\-]{1,64}+):(?!//)([^\s\"'$<{*`][^\s\"'`]{1,127}+)\Z")
# A secret access key of AWS: forty characters, told from hashes and paths by their variety.
_AWS_SECRET = re.compile(r"(?<![A-Za-z0-9/+=_-])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=_-])")
_AWS_ENTROPY = 4.3
# A name and its value in brackets, as lists of headers are printed.
_PAIR = re.compile(
    r"[\[(]\s{0,2}\\{0,3}([\"'])([A-Za-z0-9_.-]{0,32}(?:authorization|cookie|token|secret|password|passwd|api[_-]?key))"
    r"\\{0,3}\1\s{0,2},\s{0,2}\\{0,3}\1([^\"'\\\s][^\"'\\]{3,1024})",
    re.I,
)

_ASSIGNED = re.compile(
    r"(passw(?:or)?d|passphrase|secret(?:[_.-]?(?:access)?[_.-]?key)?|api[_.-]?key|access[_.-]?key|account[_.-]?key"
    r"|(?:auth|access|refresh|id|bearer|session|csrf|bot)[_.-]?token|private[_.-]?key|signing[_.-]?key|encryption[_.-]?key"
    r"|(?:set-)?cookie|(?<![A-Za-z0-9])(?:pass(?:code)?|pwd|token|signature|sig|pin|cvv2?|cvc))"
    r"(?:\\{0,3}[\"'])?(\s{0,3}(?::=|=>|[=:])\s{0,3}|\s{1,3}(?:is|was)\s{1,2})((?:\\{0,3}[\"'`])?)([^\s\"'`]{1,512})",
    re.I,
)
# A command line option and its value.
_OPTION = re.compile(
    r"(?<![\w-])--(?:[a-z0-9]{1,16}-){0,2}(passw(?:or)?d|passphrase|pass|pwd|secret|api-?key|token)"
    r"\s{1,3}(?:([\"'])([^\"'\n]{3,255})|([^\s\"'-][^\s\"']{2,255}))",
    re.I,
)
# A line of a form: nothing but the name before the value, and nothing behind it.
_FORM_NAME = re.compile(r"(?:^|\n)[ \t>*-]{0,8}passw(?:or)?d\Z", re.I)
# Characters that end a value: the next field begins there.
_VALUE_END = re.compile(r"[&,;)\]}]")
_NOT_SECRET = frozenset(
    re.findall(
        r"\S+",
        "null none nil true false undefined required optional empty string str text bytes int number any unset missing"
        " redacted hidden masked invalid expired wrong incorrect correct valid changed reset not the a an your my here"
        " there set ok env vault input prompt getpass type value yes no unknown default n/a na forgotten rejected"
        " disabled enabled unchanged accepted protected encrypted confirmed mismatch mandatory password authentication"
        " configured generated",
    )
)
_PLACEHOLDER = re.compile(
    r"[$<{%\[(]|\*{2,}|x{4,}\Z|\.{3}|your[_-]|os\.|env\.|process\.|config\.|settings\.|self\.|args\.", re.I
)
# Tokens of a listing, which are no secrets.
_PAGE_TOKEN = re.compile(r"(?:page|next|continuation|resume|sync)[_.-]?\Z", re.I)
_CODES = frozenset({"pin", "cvv", "cvv2", "cvc"})
_WEAK = frozenset({"token", "signature", "sig"})


_ASSIGNED_STEMS = ("pass", "pwd", "cookie", "secret", "key", "token", "sig", "pin", "cvv", "cvc")


def find_credentials(text: str, lowered: str) -> Iterator[Span]:
    """Yield the secrets in a text, the surest first."""
    if "-----BEGIN " in text or _PEM_END in text:
        yield from _private_keys(text)
    if "eyJ" in text:
        yield from _tokens(text)
    for beginning, kind, pattern in _KEYS:
        if beginning in text:
            yield from _keys(text, beginning, kind, pattern)
    if "@" in text and "://" in text:
        yield from _logins(text)
    if "-" in text and ":" in text:
        yield from _command_logins(text)
    if "bearer" in lowered or "basic" in lowered:
        yield from _bearers(text)
    if any(stem in lowered for stem in _ASSIGNED_STEMS):
        yield from _assignments(text)
    if "--" in text:
        yield from _options(text)
    if "," in text and ("[" in text or "(" in text):
        yield from _pairs(text)
    yield from _aws_secrets(text)


def login_password(text: str) -> int:
    """Return where the password of `user:password` begins; -1 if it is none, such as the numbers of user and group."""
    found = _LOGIN.match(text)
    if found is None or is_placeholder(found[2]) or (found[2].isdigit() and (found[1].isdigit() or len(found[2]) < 4)):
        return -1
    return found.start(2)


def _command_logins(text: str) -> Iterator[Span]:
    for found in _COMMAND_LOGIN.finditer(text):
        start = login_password(found[1])
        if start >= 0:
            yield Span(found.start(1) + start, found.end(1), CREDENTIALS)


def _pairs(text: str) -> Iterator[Span]:
    for found in _PAIR.finditer(text):
        value = found[3]
        made = len(value) >= 8 and (any(map(str.isdigit, value)) or not value.replace("_", "").isalnum())
        if made and not is_placeholder(value):
            yield Span(found.start(3), found.end(3), PASSWORD if "pass" in found[2].lower() else SECRET)


def _aws_secrets(text: str) -> Iterator[Span]:
    for found in _AWS_SECRET.finditer(text):
        value = found.group()
        mixed = not value.isupper() and not value.islower() and any(map(str.isdigit, value))
        if mixed and entropy(value) >= _AWS_ENTROPY:
            yield Span(found.start(), found.end(), "aws_key")


def _keys(text: str, beginning: str, kind: str, pattern: re.Pattern[str]) -> Iterator[Span]:
    for place in positions(text, beginning):
        inside = place and (text[place - 1].isalnum() or text[place - 1] == "_")
        found = None if inside else pattern.match(text, place)
        if found:
            yield Span(place, found.end(), kind)


def _tokens(text: str) -> Iterator[Span]:
    place = text.find("eyJ")
    while place >= 0:
        found = _JWT.match(text, place)
        if found and _is_jose_header(found.group().partition(".")[0]):
            yield Span(place, found.end(), JWT)
        # The rest of the same run cannot contain what the whole run does not.
        place = text.find("eyJ", found.end() if found else _ENCODED.match(text, place).end())  # type: ignore[union-attr]


def _is_jose_header(encoded: str) -> bool:
    try:
        header = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except (binascii.Error, ValueError):
        return False
    return header.startswith(b"{") and b'"alg"' in header


def _private_keys(text: str) -> Iterator[Span]:
    end = 0
    for found in _PEM.finditer(text):
        if found.start() < end:
            continue
        if found[1] == "END":
            # Its beginning was cut off, as in a text that keeps only its last part.
            start, end = end + len(text[end : found.start()].rstrip(_PEM_BODY)), found.end()
            yield Span(start, end, PRIVATE_KEY)
            continue
        close = text.find(_PEM_END, found.end())
        line = text.find("-----", close + len(_PEM_END)) if close >= 0 else -1
        # Without its end it was cut off; the part is still secret.
        end = line + 5 if line >= 0 else len(text)
        yield Span(found.start(), end, PRIVATE_KEY)


def _logins(text: str) -> Iterator[Span]:
    for place in positions(text, "://"):
        found = _URL_LOGIN.match(text, place)
        if found and not _PLACEHOLDER.match(found.group(2)):
            yield Span(found.start(2), found.end(2), CREDENTIALS)


def _bearers(text: str) -> Iterator[Span]:
    for found in _BEARER.finditer(text):
        value = found.group(2)
        announced = _AUTHORIZATION.search(text, max(0, found.start() - 24), found.start()) is not None
        if _looks_made(value) if not announced else not _PLACEHOLDER.match(value):
            yield Span(found.start(2), found.end(2), BEARER)


def _assignments(text: str) -> Iterator[Span]:
    for found in _ASSIGNED.finditer(text):
        word, sign, quote, value = found.group(1).lower(), found.group(2).strip(), found.group(3), found.group(4)
        if not quote:
            cut = _VALUE_END.search(value)
            value = value[: cut.start()] if cut else value.rstrip(".")
        value = value.rstrip("\\")
        if word == "token" and _PAGE_TOKEN.search(text, max(0, found.start() - 13), found.start()):
            continue
        if value and (_is_secret(word, sign, quote, value) or _fills_in(text, found, value)):
            yield Span(found.start(4), found.start(4) + len(value), _kind(word))


def _fills_in(text: str, found: re.Match[str], value: str) -> bool:
    """Return whether a name and a value have a line to themselves, as in a form."""
    behind = text[found.start(4) + len(value) : found.start(4) + len(value) + 1]
    alone = found.group(2).strip() == ":" and behind in ("", "\n", "\r") and len(value) >= 8 and value.isalnum()
    named = _FORM_NAME.search(text, max(0, found.start() - 9), found.end(1)) if alone else None
    return named is not None and not is_placeholder(value)


def _options(text: str) -> Iterator[Span]:
    for found in _OPTION.finditer(text):
        word, quote, place = found.group(1).lower(), found.group(2) or "", 3 if found.group(2) else 4
        value = found.group(place) if quote else found.group(place).rstrip(".,;:)")
        made = any(map(str.isdigit, value)) or (not value.isalnum() and "/" not in value)
        if (quote or made) and _is_secret(word, "=", quote, value):
            yield Span(found.start(place), found.start(place) + len(value), _kind(word))


def _kind(word: str) -> str:
    return SECURITY_CODE if word in _CODES else PASSWORD if word.startswith(("pass", "pwd")) else SECRET


def _is_secret(word: str, sign: str, quote: str, value: str) -> bool:
    lowered = value.lower()
    if len(value) < 3 or lowered.rstrip(".,:;!?") in _NOT_SECRET or _PLACEHOLDER.match(value):
        return False
    if word in _CODES:
        return value.isdigit() and 3 <= len(value) <= 8
    if word in _WEAK:
        assigned = word == "token" and sign == "=" and len(value) >= 6 and not value.isalpha()
        return _looks_made(value) or (assigned and any(map(str.isalpha, value)) and any(map(str.isdigit, value)))
    if quote or sign in ("=", ":="):
        return True
    # In prose a colon or "is" explains more often than it discloses.
    return len(value) >= 6 and (any(map(str.isdigit, value)) or (not value.isalnum() and "/" not in value))


def _looks_made(value: str) -> bool:
    """Return whether a value looks random: long, of letters and digits, and hard to guess."""
    return (
        len(value) >= 16
        and any(map(str.isdigit, value))
        and any(map(str.isalpha, value))
        and "://" not in value
        and entropy(value) >= 3.0
    )


def looks_secret(value: str) -> bool:
    """Return whether a value under a suspicious name is a secret."""
    return _looks_made(value) and not _UUID.fullmatch(value) and not _PLACEHOLDER.match(value)


def is_placeholder(value: str) -> bool:
    """Return whether a value is only a placeholder for a secret."""
    return value.lower() in _NOT_SECRET or _PLACEHOLDER.match(value) is not None


_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
