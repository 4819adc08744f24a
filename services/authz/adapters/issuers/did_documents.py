"""Sources of DID documents: a local folder, or a resolver over HTTPS."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from libs.common.errors import MeshError
from libs.common.json.jsonio import parse_object
from services.authz.adapters.issuers.https_documents import (
    MAX_BYTES,
    DocumentMissingError,
    DocumentUnavailableError,
    HttpsDocuments,
)


class DidDocuments(Protocol):
    """A source of DID documents."""

    async def find(self, did: str) -> dict[str, Any]:
        """Return the document of a DID. Raises DocumentMissingError or DocumentUnavailableError."""
        ...


class DidFolder:
    """A folder with one file a DID, named by the DID with `:` and `%` escaped: `did%3Aweb%3Aexample.com.json`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def find(self, did: str) -> dict[str, Any]:
        return await asyncio.to_thread(self._read, did)

    def _read(self, did: str) -> dict[str, Any]:
        path = self._folder / f"{quote(did, safe='')}.json"
        try:
            if path.stat().st_size > MAX_BYTES:
                raise DocumentUnavailableError("is too large")
            return _document(path.read_bytes(), did)
        except OSError as error:
            # A DID that is too long for a file name cannot be in the folder.
            if error.errno in (errno.ENOENT, errno.ENAMETOOLONG):
                raise DocumentMissingError(did) from None
            raise DocumentUnavailableError(type(error).__name__) from error


class DidUrl:
    """A resolver that answers `GET {address}/{did}` with a DID document or a DID resolution result."""

    def __init__(self, address: str, documents: HttpsDocuments) -> None:
        self._address, self._documents = address.rstrip("/"), documents

    async def find(self, did: str) -> dict[str, Any]:
        return _document(await self._documents.fetch(f"{self._address}/{quote(did, safe=':')}"), did)


def _document(payload: bytes, did: str) -> dict[str, Any]:
    """Parse a document and check that it is about this DID."""
    try:
        parsed = parse_object(payload, max_bytes=MAX_BYTES)
    except MeshError:
        raise DocumentUnavailableError("is not a JSON object") from None
    document = parsed.get("didDocument", parsed)
    if not isinstance(document, dict) or document.get("id") != did:
        raise DocumentMissingError(did)
    if document.get("deactivated") is True or _metadata(parsed).get("deactivated") is True:
        raise DocumentMissingError(did)
    return document


def _metadata(resolution: dict[str, Any]) -> dict[str, Any]:
    metadata = resolution.get("didDocumentMetadata")
    return metadata if isinstance(metadata, dict) else {}
