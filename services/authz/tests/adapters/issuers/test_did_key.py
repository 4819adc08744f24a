"""did:key: the published test vectors and invalid identifiers."""

from __future__ import annotations

import pytest

from services.authz.adapters.issuers.did_key import base58_decode, jwk_of, thumbprint_of
from services.authz.adapters.keys.thumbprints import jwk_thumbprint

# From the test vectors of the did:key method.
ED25519 = "did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp"
P256 = "did:key:zDnaerDaTF5BXEavCrfRZEk316dpbLsfPDZ3WJ5hRTPFU2169"
SECP256K1 = "did:key:zQ3shokFTS3brHcDQrn82RUDfCZESWL1ZdCEJwekUDPQiYBme"
RSA = (
    "did:key:z4MXj1wBzi9jUstyPMS4jQqB6KdJaiatPkAtVtGc6bQEQEEsKTic"
    "4G7Rou3iBf9vPmT5dbkm9qsZsuVNjq8HCuW1w24nhBFGkRE4cd2Uf2tf"
    "rB3N7h4mnyPp1BF3ZttHTYv3DLUPi1zMdkULiow3M1GfXkoC6DoxDUm1jmN6"
    "GBj22SjVsr6dxezRVQc7aj9TxE7JLbMH1wh5X3kA58H3DFW8rnYMakFG"
    "bca5CB2Jf6CnGQZmL7o5uJAdTwXfy2iiiyPxXEGerMhHwhjTA1mKYobyk2Cp"
    "eEcmvynADfNZ5MBvcCS7m3XkFCMNUYBS9NQ3fze6vMSUPsNa6GVYmKx2"
    "x6JrdEjCk3qRMMmyjnjCMfR4pXbRMZa3i"
)
X25519 = "did:key:z6LSbysY2xFMRpGMhb7tFTLMpeuPRaqaWM1yECx2AtzE3KCc"


def test_the_published_vectors() -> None:
    assert jwk_of(ED25519) == {"kty": "OKP", "crv": "Ed25519", "x": "O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik"}
    assert jwk_of(P256) == {
        "kty": "EC",
        "crv": "P-256",
        "x": "fyNYMN0976ci7xqiSdag3buk-ZCwgXU4kz9XNkBlNUI",
        "y": "hW2ojTNfH7Jbi8--CJUo3OCbH3y5n91g-IMA9MLMbTU",
    }
    assert jwk_of(SECP256K1) == {
        "kty": "EC",
        "crv": "secp256k1",
        "x": "h0wVx_2iDlOcblulc8E5iEw1EYh5n1RYtLQfeSTyNc0",
        "y": "O2EATIGbu6DezKFptj5scAIRntgfecanVNXxat1rnwE",
    }
    rsa = jwk_of(RSA)
    assert (rsa["kty"], rsa["e"]) == ("RSA", "AQAB")
    assert rsa["n"].startswith(
        "sbX82NTV6IylxCh7MfV4hlyvaniCajuP97GyOqSvTmoEdBOflFvZ06kR_9D6ctt45Fk6hskfnag2GG69NALVH2o4"
    )


def test_a_thumbprint_is_that_of_the_rfc() -> None:
    # RFC 8037, appendix A.3.
    jwk = {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}
    assert jwk_thumbprint({**jwk, "kid": "ignored"}) == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
    assert len(thumbprint_of(P256)) == 43


@pytest.mark.parametrize(
    ("text", "octets"), [("2NEpo7TZRRrLZSi2U", b"Hello World!"), ("112", b"\0\0\x01"), ("1", b"\0")]
)
def test_base58(text: str, octets: bytes) -> None:
    assert base58_decode(text) == octets


@pytest.mark.parametrize(
    "did",
    [
        "did:key:",
        "did:key:z",
        "did:key:zO0Il",
        "did:key:" + ED25519.removeprefix("did:key:z"),
        "did:key:m7QEgESIz",
        X25519,
        ED25519[:-2],
        ED25519 + "z",
        P256[:-3],
        "did:key:z" + "1" * 2000,
        "did:key:z6Mk%3A",
        "did:web:example.com",
    ],
)
def test_an_unsupported_did_key_is_refused(did: str) -> None:
    with pytest.raises(ValueError):
        jwk_of(did)
