"""Signatures of Standard Webhooks."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest

from libs.common.webhooks.signature import ID, SIGNATURE, TIMESTAMP, signed_headers, signing_key


def test_the_signature_is_that_of_the_published_example() -> None:
    key = signing_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    time = datetime.fromtimestamp(1614265330, UTC)
    headers = signed_headers(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", time, b'{"test": 2432232314}')
    assert headers == {
        ID: "msg_p5jXN8AQM9LWM0D4loKWxJek",
        TIMESTAMP: "1614265330",
        SIGNATURE: "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "whsec_",
        "whsec_not base64",
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_" + base64.b64encode(b"x" * 23).decode(),
        "whsec_" + base64.b64encode(b"x" * 65).decode(),
    ],
)
def test_a_secret_of_another_form_is_refused(secret: str) -> None:
    with pytest.raises(ValueError):
        signing_key(secret)
