"""The signature of a manifest's provenance: it holds for its key and this manifest, and for nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from toolmesh.registry.v1 import tool_manifest_pb2 as pb

from libs.common.json.canonical import canonical
from libs.common.signed_documents import public_key_of, sign
from services.registry.convert.manifest import manifest_of, message_of
from services.registry.domain.publishing.rules.provenance import verify_signature
from services.registry.tests.manifests import reader

KEY, OTHER = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()


def published() -> pb.ToolManifest:
    message = reader()
    stated = pb.Provenance(pack_digest="sha256:" + "a" * 64, revision="v1", public_key=public_key_of(KEY))
    message.provenance.CopyFrom(stated)
    message.provenance.signature = sign(KEY, canonical(manifest_of(message).document))
    return message


def test_the_signature_of_its_key_is_admitted_and_survives_storage() -> None:
    assert not [*verify_signature(manifest_of(published()))]
    assert not [*verify_signature(manifest_of(message_of(manifest_of(published()))))]
    assert not [*verify_signature(manifest_of(reader()))]


def another_signature(message: pb.ToolManifest) -> None:
    message.provenance.signature = sign(OTHER, canonical(manifest_of(reader()).document))


@pytest.mark.parametrize(
    "spoil",
    [
        another_signature,
        lambda message: setattr(message, "version", "9.9.9"),
        lambda message: setattr(message, "description", "Says something else now."),
        lambda message: setattr(message.provenance, "pack_digest", "sha256:" + "b" * 64),
        lambda message: setattr(message.provenance, "revision", "v2"),
        lambda message: setattr(message.provenance, "public_key", public_key_of(OTHER)),
        lambda message: setattr(message.provenance, "public_key", "*" * 43),
        lambda message: setattr(message.provenance, "signature", ""),
        lambda message: message.provenance.Clear(),
    ],
)
def test_anything_else_is_refused(spoil: Callable[[pb.ToolManifest], Any]) -> None:
    message = published()
    spoil(message)
    message.provenance.SetInParent()
    [violation] = verify_signature(manifest_of(message))
    assert (violation.path, violation.rule) == ("manifest.provenance.signature", "provenance.signature")
