"""The certificate, key and authority of this process as they are on disk: replaced ones are read again."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

CHECK_SECONDS = 5.0
"""The least time between two looks at the files."""


class Credentials(Protocol):
    """The TLS files of this process."""

    @property
    def tls_cert(self) -> Path: ...
    @property
    def tls_key(self) -> Path: ...
    @property
    def tls_ca(self) -> Path: ...


class TlsMaterial(NamedTuple):
    """Key, certificate and authority, in PEM."""

    key: bytes
    certificate: bytes
    authority: bytes


class TlsFiles:
    """Follows the files for one user of them, such as a server or a channel."""

    def __init__(self, credentials: Credentials, clock: Callable[[], float] = time.monotonic) -> None:
        self._paths = (credentials.tls_key, credentials.tls_cert, credentials.tls_ca)
        self._clock = clock
        self._stamp = self._look()
        self._check_after = clock() + CHECK_SECONDS
        self.current = self._read()
        """What was read last."""

    def renewed(self) -> TlsMaterial | None:
        """Return what replaced `current`, once; None while nothing did. Never raises and never waits.

        Files that are amid their replacement, missing or of no use change nothing: they are looked at again later.
        """
        now = self._clock()
        if now < self._check_after:
            return None
        self._check_after = now + CHECK_SECONDS
        try:
            stamp = self._look()
            if stamp == self._stamp:
                return None
            material = self._read()
            if not _fit(material):
                return None
        except (OSError, ValueError):
            return None
        self._stamp, before, self.current = stamp, self.current, material
        return material if material != before else None

    def _look(self) -> tuple[tuple[int, int], ...]:
        """Return what identifies the present files, through the links of a mounted secret."""
        return tuple((status.st_mtime_ns, status.st_ino) for status in map(Path.stat, self._paths))

    def _read(self) -> TlsMaterial:
        return TlsMaterial(*(path.read_bytes() for path in self._paths))


def _fit(material: TlsMaterial) -> bool:
    """Return whether the key is the certificate's, which it is not while only one of them has been replaced."""
    x509.load_pem_x509_certificates(material.authority)
    certified = x509.load_pem_x509_certificate(material.certificate).public_key()
    own = load_pem_private_key(material.key, None).public_key()
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return certified.public_bytes(*form) == own.public_bytes(*form)
