"""Secrets to plant, each valid of its kind and never seen before, and a search that finds them in any of their
disguises."""

from __future__ import annotations

import base64
import secrets
import string
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

_LETTERS = string.ascii_letters + string.digits


def _some(count: int, alphabet: str = _LETTERS) -> str:
    return "".join(secrets.choice(alphabet) for _ in range(count))


def _card() -> str:
    """A number with the check digit of ISO/IEC 7812."""
    digits = "4" + _some(14, string.digits)
    doubled = [int(d) * (2 - i % 2) for i, d in enumerate(digits)]
    return digits + str(-sum(d - 9 if d > 9 else d for d in doubled) % 10)


def _iban() -> str:
    """A German account number with the check digits of ISO 7064."""
    account = _some(18, string.digits)
    return f"DE{98 - int(account + '131400') % 97:02d}{account}"


def _ssn() -> str:
    """A social security number of the ranges that were given out."""
    return f"{100 + secrets.randbelow(560):03d}-{10 + secrets.randbelow(89):02d}-{1000 + secrets.randbelow(8999):04d}"


@dataclass(frozen=True)
class Planted:
    """One set of secrets."""

    api_key: str = field(default_factory=lambda: f"sk_live_{_some(32)}")
    cloud_key: str = field(default_factory=lambda: "AKIA" + _some(16, string.ascii_uppercase + string.digits))
    token: str = field(default_factory=lambda: f"ghp_{_some(36)}")
    password: str = field(default_factory=lambda: f"Pw-{_some(20)}")
    card: str = field(default_factory=_card)
    iban: str = field(default_factory=_iban)
    ssn: str = field(default_factory=_ssn)

    def all(self) -> dict[str, str]:
        """Return every secret by its name."""
        return {name: str(value) for name, value in vars(self).items()}


def disguises(secret: str) -> set[bytes]:
    """Return the forms in which a secret may lie somewhere: as it is, in hexadecimal as databases dump bytes, and in
    base64 at
    each of the three offsets."""
    plain = secret.encode()
    found = {plain, plain.hex().encode(), plain.hex().upper().encode()}
    for offset in range(3):
        coded = base64.b64encode(b"\0" * offset + plain)
        # The first and last groups depend on what stands beside it.
        found |= {coded[4 if offset else 0 : len(coded) - 4], base64.urlsafe_b64encode(b"\0" * offset + plain)[4:-4]}
    return {form for form in found if len(form) >= 8}


def found_in(content: bytes, planted: dict[str, str]) -> set[str]:
    """Return the names of the secrets that are somewhere in the content."""
    return {name for name, secret in planted.items() if any(form in content for form in disguises(secret))}


def process_list() -> bytes:
    """Return the command lines of every process of the machine."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        # A process may end meanwhile.
        with suppress(OSError):
            lines.append(path.read_bytes())
    return b"\n".join(lines)


def files_below(folder: Path, *, without: tuple[str, ...] = ()) -> dict[str, bytes]:
    """Return every file below a folder that can be read, by its path from there."""
    kept = {}
    for path in folder.rglob("*"):
        place = path.relative_to(folder)
        if place.parts[0] not in without and path.is_file() and not path.is_symlink():
            kept[str(place)] = path.read_bytes()
    return kept
