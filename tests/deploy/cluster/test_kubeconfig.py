"""Kubeconfig files hold the address, the authority and one user's credentials, and nothing of other users."""

from __future__ import annotations

import base64
import json

import pytest

from deploy.cluster.addresses import LOOPBACK, api_url
from deploy.cluster.certificates import SUBJECTS
from deploy.cluster.kubeconfig import USERS, render_kubeconfig

PKI = {
    "ca.crt": b"authority",
    **{f"{user}.{kind}": f"{user} {kind}".encode() for user in USERS for kind in ("crt", "key")},
}


@pytest.mark.parametrize("user", USERS)
def test_a_kubeconfig_holds_one_users_credentials(user: str) -> None:
    document = json.loads(render_kubeconfig(user, PKI))
    (entry,) = document["users"]
    assert {name: base64.b64decode(value) for name, value in entry["user"].items()} == {
        "client-certificate-data": PKI[f"{user}.crt"],
        "client-key-data": PKI[f"{user}.key"],
    }
    (context,) = document["contexts"]
    assert (context["name"], context["context"]["user"]) == (document["current-context"], entry["name"])


def test_a_kubeconfig_verifies_the_server_at_the_given_address() -> None:
    url = api_url(LOOPBACK, 40123)
    (cluster,) = json.loads(render_kubeconfig("admin", PKI, url))["clusters"]
    authority = base64.b64encode(PKI["ca.crt"]).decode()
    assert cluster["cluster"] == {"server": "https://127.0.0.1:40123", "certificate-authority-data": authority}


def test_every_user_has_a_certificate() -> None:
    assert set(USERS) <= SUBJECTS.keys()
