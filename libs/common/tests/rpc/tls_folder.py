"""A folder with the TLS files of one identity, which tests replace as the kubelet and people do."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class TlsFolder:
    """Credentials whose files are links to links, as in a mounted secret."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, 0
        folder.mkdir()
        for name in ("tls.key", "tls.crt", "ca.crt"):
            (folder / name).symlink_to(Path("..data") / name)
        self.tls_key, self.tls_cert, self.tls_ca = (folder / name for name in ("tls.key", "tls.crt", "ca.crt"))

    def replace(self, pki: Any, identity: str, *, key_of: str = "") -> None:
        """Replace all files at once; with `key_of` the key is that of another identity."""
        self._count += 1
        content = self._folder / f"..{self._count}"
        content.mkdir()
        own, key = pki.of(identity), pki.of(key_of or identity).key
        for name, source in (("tls.key", key), ("tls.crt", own.cert), ("ca.crt", pki.ca)):
            (content / name).write_bytes(source.read_bytes())
        fresh = self._folder / "..data_tmp"
        fresh.symlink_to(content.name)
        fresh.rename(self._folder / "..data")
