"""Resolution of did:key and did:web."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.testing.clock import ManualClock
from services.authz.adapters.issuers.did_documents import DidFolder, DidUrl
from services.authz.adapters.issuers.did_key import jwk_of, thumbprint_of
from services.authz.adapters.issuers.did_resolver import CACHE_SECONDS, MISSING_CACHE_SECONDS, MeshDidResolver
from services.authz.adapters.issuers.https_documents import HttpsDocuments
from services.authz.tests.adapters.issuers.test_did_key import ED25519, P256, SECP256K1, X25519
from services.authz.tests.https_server import HttpsServer, serving

BOB = "did:web:example.com:users:bob"


def document(did: str = BOB, **changes: Any) -> dict[str, Any]:
    return {
        "id": did,
        "verificationMethod": [
            {"id": "#1", "publicKeyJwk": jwk_of(P256)},
            {"id": "#2", "publicKeyMultibase": ED25519.removeprefix("did:key:")},
            {"id": "#3", "publicKeyMultibase": "zUnknown"},
        ],
        "authentication": ["#3", "#2", "#1", "#9", {"id": "#4", "publicKeyJwk": {"kty": "oct"}}],
        **changes,
    }


def put(folder: Path, did: str, content: Any) -> None:
    (folder / f"{quote(did, safe='')}.json").write_text(json.dumps(content))


@pytest.fixture
def dids(tmp_path: Path, clock: ManualClock) -> MeshDidResolver:
    return MeshDidResolver("toolmesh.local", DidFolder(tmp_path), clock)


async def reason(dids: MeshDidResolver, did: str) -> Reason:
    with pytest.raises(MeshError) as caught:
        await dids.resolve(did)
    return caught.value.reason


async def test_a_key_speaks_for_itself(dids: MeshDidResolver) -> None:
    assert (await dids.resolve(ED25519)).thumbprints == (thumbprint_of(ED25519),)


async def test_a_key_that_no_proof_can_be_made_with_vouches_and_binds_nothing(
    dids: MeshDidResolver, tmp_path: Path
) -> None:
    assert (await dids.resolve(SECP256K1)).thumbprints == ()
    method = {"id": "#0", "publicKeyMultibase": SECP256K1.removeprefix("did:key:")}
    other = {"id": "#5", "publicKeyJwk": {"kty": "EC", "crv": "P-384", "x": "a", "y": "b"}}
    put(tmp_path, BOB, document(authentication=[method, other, "#2"]))
    assert (await dids.resolve(BOB)).thumbprints == (thumbprint_of(ED25519),)


async def test_the_operator_vouches_for_the_meshs_own_names(dids: MeshDidResolver) -> None:
    for did in ("did:web:toolmesh.local", "did:web:toolmesh.local:agents:bot"):
        assert (await dids.resolve(did)).thumbprints == ()


async def test_a_document_names_the_keys_in_its_own_order(dids: MeshDidResolver, tmp_path: Path) -> None:
    put(tmp_path, BOB, document())
    assert (await dids.resolve(BOB)).thumbprints == (thumbprint_of(ED25519), thumbprint_of(P256))


@pytest.mark.parametrize(
    "did",
    [
        BOB,
        X25519,
        "did:key:nonsense",
        "did:web:toolmesh.localhost",
        "did:web:toolmesh.local.example.com:agents:bot",
        "did:web:-x",
        "did:web:a:" + "b" * 400,
        "did:web:example.com::x",
        "did:plc:abcdefghijklmnop",
        "did:example:123",
    ],
)
async def test_others_get_not_found(dids: MeshDidResolver, did: str) -> None:
    assert await reason(dids, did) is Reason.DID_NOT_FOUND


async def test_without_a_resolver_only_keys_and_own_names_are_known(clock: ManualClock) -> None:
    assert await reason(MeshDidResolver("toolmesh.local", None, clock), BOB) is Reason.DID_NOT_FOUND


@pytest.mark.parametrize("found", [document("did:web:example.com:users:eve"), {}, document(deactivated=True)])
async def test_a_document_of_another_did_is_refused(dids: MeshDidResolver, tmp_path: Path, found: Any) -> None:
    put(tmp_path, BOB, found)
    assert await reason(dids, BOB) is Reason.DID_NOT_FOUND


async def test_answers_are_kept_for_a_while_and_noes_shortly(
    dids: MeshDidResolver, tmp_path: Path, clock: ManualClock
) -> None:
    assert await reason(dids, BOB) is Reason.DID_NOT_FOUND
    put(tmp_path, BOB, document())
    assert await reason(dids, BOB) is Reason.DID_NOT_FOUND
    clock.advance(MISSING_CACHE_SECONDS)
    await dids.resolve(BOB)
    (tmp_path / f"{quote(BOB, safe='')}.json").unlink()
    await dids.resolve(BOB)
    clock.advance(CACHE_SECONDS)
    assert await reason(dids, BOB) is Reason.DID_NOT_FOUND


@pytest.fixture
def https_server(pki: Any) -> Iterator[HttpsServer]:
    with serving(pki) as server:
        yield server


@pytest.fixture
def remote(https_server: HttpsServer, pki: Any, clock: ManualClock) -> MeshDidResolver:
    return MeshDidResolver(
        "toolmesh.local",
        DidUrl(https_server.address + "/1.0/identifiers/", HttpsDocuments(pki.ca, timeout=2, max_bytes=4096)),
        clock,
    )


@pytest.mark.parametrize("wrapped", [False, True])
async def test_a_did_is_resolved_over_https(remote: MeshDidResolver, https_server: HttpsServer, wrapped: bool) -> None:
    found = {"didDocument": document(), "didDocumentMetadata": {}} if wrapped else document()
    https_server.documents[f"/1.0/identifiers/{BOB}"] = json.dumps(found).encode()
    assert len((await remote.resolve(BOB)).thumbprints) == 2
    await remote.resolve(BOB)
    assert len(https_server.requested) == 1


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (404, Reason.DID_NOT_FOUND),
        (410, Reason.DID_NOT_FOUND),
        (500, Reason.SERVICE_UNAVAILABLE),
        (302, Reason.SERVICE_UNAVAILABLE),
        (b"nonsense", Reason.SERVICE_UNAVAILABLE),
        (b" " * 5000, Reason.SERVICE_UNAVAILABLE),
        (
            json.dumps({"didDocument": document(), "didDocumentMetadata": {"deactivated": True}}).encode(),
            Reason.DID_NOT_FOUND,
        ),
    ],
)
async def test_responses_of_a_did_resolver(
    remote: MeshDidResolver, https_server: HttpsServer, answer: Any, expected: Reason
) -> None:
    https_server.documents[f"/1.0/identifiers/{BOB}"] = answer
    assert await reason(remote, BOB) is expected
    assert len(https_server.requested) == 1


async def test_a_resolver_that_is_not_trusted_is_not_believed(https_server: HttpsServer, clock: ManualClock) -> None:
    https_server.documents[f"/{BOB}"] = json.dumps(document()).encode()
    dids = MeshDidResolver("toolmesh.local", DidUrl(https_server.address, HttpsDocuments(timeout=2)), clock)
    assert await reason(dids, BOB) is Reason.SERVICE_UNAVAILABLE
