"""Certificates of servers outside of the mesh."""

from __future__ import annotations

import subprocess
from pathlib import Path

_REQUEST = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


def make_certificate(folder: Path, name: str, *alternatives: str) -> tuple[Path, Path]:
    """Make a certificate that is its own authority, for names such as `DNS:localhost`; return its file and its key."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    subject = ["-subj", f"/CN={name}", "-addext", f"subjectAltName={','.join(alternatives)}"]
    words = [*_REQUEST, *subject, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(words, check=True, capture_output=True)
    return certificate, key
