"""The lock of a pack's third-party packages, in the format of pip: each at a version, with the hashes of its files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from packaging.markers import Marker
from packaging.utils import canonicalize_name

LOCK, FOLDER = "requirements.lock", "wheels"
_PIN = re.compile(
    r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9.!+_-]+)(?:\s*;\s*([^;]{1,4000}?))?((?:\s+--hash=sha256:[0-9a-f]{64})+)"
)
_HASH = re.compile(r"sha256:([0-9a-f]{64})")


class WheelError(Exception):
    """The packages of a pack cannot be installed; the message names the defect."""


@dataclass(frozen=True, slots=True)
class LockedPackage:
    """A package at a version, the digests that a file of it may have, and the interpreters that need it."""

    name: str
    version: str
    digests: frozenset[str]
    marker: Marker | None = None
    """Absent if every interpreter needs it."""

    def is_needed(self, environment: Mapping[str, str] | None = None) -> bool:
        """Return whether an interpreter with these marker values needs it; by default this one. Raises WheelError."""
        if self.marker is None:
            return True
        try:
            return self.marker.evaluate(None if environment is None else dict(environment))
        except ValueError as error:
            raise WheelError(f"{LOCK}: the marker of {self.name} cannot be evaluated: {error}") from None


def read_lock(text: str) -> tuple[LockedPackage, ...]:
    """Return the packages of a lock in the format of pip. Raises WheelError for a line without hashes."""
    packages = []
    for line in re.sub(r"\\\n", " ", text).splitlines():
        pin = line.partition(" #")[0].strip()
        if pin and not pin.startswith("#"):
            packages.append(_read_pin(pin))
    return tuple(packages)


def _read_pin(pin: str) -> LockedPackage:
    match = _PIN.fullmatch(pin)
    if match is None:
        raise WheelError(f"{LOCK}: {pin[:80]} is not NAME==VERSION --hash=sha256:...")
    try:
        marker = Marker(match[3]) if match[3] else None
    except (ValueError, RecursionError):
        raise WheelError(f"{LOCK}: {pin[:80]} has a marker that is none") from None
    return LockedPackage(canonicalize_name(match[1]), match[2], frozenset(_HASH.findall(match[4])), marker)
