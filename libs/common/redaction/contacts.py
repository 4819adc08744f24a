"""Finds e-mail addresses, and network addresses where a rule asks for them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from libs.common.redaction.spans import Span, positions

EMAIL, IP = "email", "ip_address"

_LOCAL = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.!#$%&'*+-/=?^_`{|}~"
_LONGEST_LOCAL = 64
_DOMAIN = re.compile(r"(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}([^\W\d_]{2,24}|xn--[a-z0-9-]{2,58})(?![\w-])")
# `logo@2x.png` and `lib@1.2.js` name files.
_FILE_ENDINGS = re.compile(
    "png|jpe?g|gif|svg|webp|ico|m?js|tsx?|jsx|css|html|json|py|rb|go|rs|java|zip|t?gz|md|txt", re.IGNORECASE
)
_IPV4 = re.compile(r"(?:[0-9]{1,3}\.){3}[0-9]{1,3}")
_IPV6 = re.compile(r"(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}")


def find_emails(text: str) -> Iterator[Span]:
    """Yield the e-mail addresses in a text."""
    for at in positions(text, "@"):
        window = text[max(0, at - _LONGEST_LOCAL) : at]
        # The local part may contain these in theory; in practice it begins after the last quote, bracket or equals
        # sign.
        local = window[len(window.rstrip(_LOCAL)) :].rpartition("=")[2].lstrip("'.`{|/&?#-")
        match = _DOMAIN.match(text, at + 1)
        start = at - len(local)
        if not local or local.endswith(".") or match is None or _FILE_ENDINGS.fullmatch(match.group(1)):
            continue
        if not _is_login(text, start, local, match.end()):
            yield Span(start, match.end(), EMAIL)


def _is_login(text: str, start: int, local: str, end: int) -> bool:
    """Return whether it is a login such as `ssh://git@host/` or `git@host:path`, not an e-mail address."""
    return (
        text[max(0, start - 2) : start] == "//"
        or "//" in local
        or (local == "git" and text[end : end + 1] in (":", "/"))
    )


def find_addresses(text: str) -> Iterator[Span]:
    """Yield the network addresses in a text; a version with four numbers looks the same."""
    for pattern in (_IPV4, _IPV6):
        for match in pattern.finditer(text):
            before, after = text[max(0, match.start() - 1) : match.start()], text[match.end() : match.end() + 2]
            inside = before.isalnum() or (before != "" and before in ".:_-") or after[:1].isalnum()
            goes_on = after[:1] == "." and after[1:].isdigit()
            if not inside and not goes_on and _is_address(match.group()):
                yield Span(match.start(), match.end(), IP)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
