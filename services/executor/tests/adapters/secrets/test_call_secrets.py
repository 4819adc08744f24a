"""The credentials of one call: their fingerprint, and what shows none of them."""

from __future__ import annotations

import pytest

from libs.common.errors import MeshError, Reason
from services.executor.adapters.secrets.call_secrets import (
    NO_SECRETS,
    CallSecrets,
    EmptySecretStore,
    read_call_secrets,
)
from services.executor.tests.packing import python_tool

VALUE = "s3cr3t-value-0123"


def test_a_fingerprint_differs_with_the_value_and_the_name_and_shows_neither() -> None:
    prints = {
        CallSecrets(values).fingerprint for values in ({"key": VALUE}, {"key": VALUE + "2"}, {"other": VALUE}, {})
    }
    assert len(prints) == 4
    assert CallSecrets({"key": VALUE}).fingerprint == CallSecrets({"key": VALUE}).fingerprint
    assert VALUE not in f"{CallSecrets({'key': VALUE})!r}{prints}"


def test_values_are_removed_from_nested_fields_and_keys_stay() -> None:
    secrets = CallSecrets({"key": VALUE})
    fields = {"text": f"a {VALUE}", "list": [VALUE, 7], "n": None}
    assert secrets.remove_from_fields(fields) == {"text": "a [redacted]", "list": ["[redacted]", 7], "n": None}
    assert NO_SECRETS.remove_from_fields(fields) is fields


async def test_without_a_store_there_are_no_credentials() -> None:
    tool = python_tool("pack/module:function", secrets=(("key", "crm"),))
    assert await read_call_secrets(python_tool("pack/module:function"), "acme", EmptySecretStore()) is NO_SECRETS
    with pytest.raises(MeshError) as refused:
        await read_call_secrets(tool, "acme", EmptySecretStore())
    assert refused.value.reason is Reason.CREDENTIAL_NOT_FOUND
    await EmptySecretStore().reject("crm", "acme")
