"""The commands that set what tools need."""

from __future__ import annotations

from typing import Any

from authoring.manifests.needed_secrets import needed_secrets


def manifest(namespace: str, *secrets: str, hosts: list[str] | None = None) -> dict[str, Any]:
    uses = [{"name": "key", "secret": f"secret://{secret}"} for secret in secrets]
    policy = {"network_policy": {"allowed_domains": hosts}} if hosts else {}
    return {"namespace": namespace, "execution": {"secrets": uses, **policy}}


def test_a_command_allows_what_all_tools_ask_for_and_no_more() -> None:
    tools = [
        manifest("acme", "crm", "signing_key"),
        manifest("acme", "crm", hosts=["*.example.com", "api.example.org"]),
        manifest("bolt"),
    ]
    assert needed_secrets(tools) == {
        "crm": "toolmesh secrets set crm --host '*.example.com' --host api.example.org --namespace acme",
        "signing_key": "toolmesh secrets set signing_key --namespace acme",
    }
    assert needed_secrets([{"namespace": "acme"}]) == {}
