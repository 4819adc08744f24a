"""Admission rule for the provenance of a version."""

from __future__ import annotations

from collections.abc import Iterator

from libs.common.errors import Violation
from libs.common.json.canonical import canonical
from libs.common.signed_documents import is_signed_by
from services.registry.domain.publishing.manifest import Manifest


def verify_signature(manifest: Manifest) -> Iterator[Violation]:
    """Require the signature of a stated provenance to be that of its key over this very manifest."""
    provenance = manifest.document.get("provenance")
    if provenance is None:
        return
    signed = {name: value for name, value in provenance.items() if name != "signature"}
    payload = canonical({**manifest.document, "provenance": signed})
    if not is_signed_by(provenance.get("public_key", ""), payload, provenance.get("signature", "")):
        yield Violation(
            "manifest.provenance.signature",
            "provenance.signature",
            "is not the signature of the key over this manifest",
        )
