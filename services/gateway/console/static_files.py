"""The console's scripts, styles and images: read once, served from memory, cached by browsers for a year."""

from __future__ import annotations

import hashlib
from pathlib import Path

from services.gateway.console.response import Response
from services.gateway.transport.asgi_types import Header

PREFIX = "/console/static/"
_FOLDER = Path(__file__).parent / "static"
_TYPES = {".js": b"text/javascript; charset=utf-8", ".css": b"text/css; charset=utf-8", ".svg": b"image/svg+xml"}
# The URL changes with the content, so a copy is never stale.
_CACHED: Header = (b"cache-control", b"public, max-age=31536000, immutable")


class StaticFiles:
    """The files by their URL, which has the digest of the content."""

    def __init__(self, folder: Path = _FOLDER) -> None:
        self._by_path: dict[str, Response] = {}
        self._urls: dict[str, str] = {}
        for file in sorted(folder.rglob("*")):
            if file.suffix in _TYPES:
                self._add(file.relative_to(folder).as_posix(), file.read_bytes(), _TYPES[file.suffix])

    def url(self, name: str) -> str:
        """Return the URL of a file."""
        return self._urls[name]

    def get(self, path: str) -> Response | None:
        """Return the file of a URL's path; None if there is none."""
        return self._by_path.get(path)

    def _add(self, name: str, content: bytes, content_type: bytes) -> None:
        path = f"{PREFIX}{hashlib.sha256(content).hexdigest()[:16]}/{name}"
        self._urls[name], self._by_path[path] = path, Response(200, content, content_type, (_CACHED,))
