"""Finds e-mail addresses and network addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address

from libs.common.redaction.detectors.spans import Span, positions

EMAIL, IP = "email", "ip_address"

_LOCAL = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.!#$%&'*+-/=?^_`{|}~"
_LONGEST_LOCAL = 64
_DOMAIN = re.compile(r"(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}([^\W\d_]{2,24}|xn--[a-z0-9-]{2,58})(?![\w-])")
# `logo@2x.png` and `lib@1.2.js` name files.
_FILE_ENDINGS = re.compile(
    "png|jpe?g|gif|svg|webp|ico|m?js|tsx?|jsx|css|html|json|py|rb|go|rs|java|zip|t?gz|md|txt", re.IGNORECASE
)
_ADDRESS_RUN = re.compile(r"[0-9A-Fa-f:.]{6,}+")
_LONGEST_ADDRESS, _LONGEST_WORD = 45, 24
# `version 1.2.3.4`, `release=1.2.3.4`, and `Chrome/120.0.0.0` of a browser.
_VERSION = re.compile(r"(?:version|release|build)[\"']?[ :=]{1,3}\Z|(?<![^\s(\"])[A-Za-z][\w-]{0,20}/\Z", re.I)


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


def find_addresses(text: str, *, local: bool = False) -> Iterator[Span]:
    """Yield the network addresses in a text, loopback ones only with `local`."""
    for run in _ADDRESS_RUN.finditer(text):
        before, after = text[max(0, run.start() - 1) : run.start()], text[run.end() : run.end() + 1]
        inside = (_in_word(before) and run.group()[0] != ":") or _in_word(after)
        version = _VERSION.search(text, max(0, run.start() - _LONGEST_WORD), run.start())
        if not inside and version is None:
            yield from (Span(*place, IP) for place in _places(run) if local or not _is_local(text[slice(*place)]))


def _in_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _places(run: re.Match[str]) -> Iterator[tuple[int, int]]:
    """Yield where the addresses of a run begin and end: one of version 6, or those of version 4 between its colons."""
    text, start = run.group(), run.start()
    if text.count(":") > 1:
        whole = text if text.startswith("::") else text.lstrip(":")
        start += len(text) - len(whole)
        whole = whole.rstrip(".") if whole.endswith("::") else whole.rstrip(".:")
        if len(whole) <= _LONGEST_ADDRESS and _looks_like_version_6(whole) and _parsed(whole) is not None:
            yield start, start + len(whole)
            return
    start = run.start()
    for piece in text.split(":"):
        address = piece.strip(".")
        if address.count(".") == 3 and len(address) <= 15 and _parsed(address) is not None:
            begin = start + len(piece) - len(piece.lstrip("."))
            yield begin, begin + len(address)
        start += len(piece) + 1


def _looks_like_version_6(text: str) -> bool:
    """Return whether it is more than a slice (`1::2`) or a name (`a::b`)."""
    first = text.partition(":")[0]
    return any(map(str.isdigit, text)) and (len(first) > 2 or text.count(":") > 4 or text.lower().startswith("::ffff:"))


def _is_local(text: str) -> bool:
    address = _parsed(text)
    return address is None or address.is_loopback or address.is_unspecified


def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None
