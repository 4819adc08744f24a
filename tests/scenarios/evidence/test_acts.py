"""An auditor's walk: who changed the policy, minted this token, registered this tool; each by one command, from the log
alone."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from toolmesh_sdk.cli.main import build
from typer.testing import CliRunner

from tests.harness.mesh import ALICE, Mesh, cli
from tests.harness.stores import wait_until

RULE = """
@id("walk") @effect("deny") @reason("Never.")
forbid (principal, action == Action::"invoke", resource) when { context.arguments.facts.contains("/text=walk") };
"""
AGENT = "did:web:toolmesh.local:agents:walker"
SECRET_REASON = "asked by AKIAIOSFODNN7EXAMPLE"


class Auditor:
    """Reads the acts of the log with the command line."""

    def __init__(self, mesh: Mesh, token: str) -> None:
        self.mesh, self.token = mesh, token

    def acts(self, resource: str) -> list[dict[str, Any]]:
        arguments = ["audit", "acts", resource, "--token", self.token, "--json"]
        ran = CliRunner().invoke(build(plugins=()), arguments, env={"TOOLMESH_STATE": str(self.mesh.state)})
        assert ran.exit_code == 0, ran.output
        return [record["record"] for record in json.loads(ran.stdout)["records"]]

    def act(self, resource: str, event: str) -> dict[str, Any]:
        """Return the newest act of this class on a resource, once it is in the log."""
        matching: list[dict[str, Any]] = []

        def arrived() -> bool:
            matching[:] = [act for act in self.acts(resource) if act["event_class"] == event]
            return bool(matching)

        wait_until(arrived, f"{event} on {resource}")
        return matching[0]


@pytest.fixture
def auditor(mesh: Mesh) -> Auditor:
    return Auditor(mesh, mesh.token(tools="core.*", scopes="audit:read"))


def claims_of(mesh: Mesh, token: str) -> dict[str, Any]:
    shown = cli("token", "inspect", token, "--json", state=mesh.state)
    return json.loads(shown.stdout)["claims"]  # type: ignore[no-any-return]


def test_the_log_tells_who_changed_the_policy(mesh: Mesh, auditor: Auditor, tmp_path: Path) -> None:
    (tmp_path / "walk.cedar").write_text(RULE)
    put = cli("policy", "put", str(tmp_path), "-m", "walk", "--json", state=mesh.state)
    name = json.loads(put.stdout)["policy_set"]["name"]
    number = name.removeprefix("policySets/")
    stored = auditor.act(name, "policy_put")
    assert (stored["caller"]["peer"], stored["act"]["reason"], stored["writer"]) == ("operator", "walk", "authz")
    assert len(stored["act"]["certificate_thumbprint"]) == 43
    cli("policy", "activate", number, state=mesh.state)
    cli("policy", "rollback", state=mesh.state)
    activated = auditor.act(name, "policy_activated")
    assert activated["act"]["after_digest"] == stored["act"]["after_digest"] != activated["act"]["before_digest"]
    assert len(activated["trace_id"]) == 32
    rolled_back = auditor.act(activated["result_summary"]["replaces"], "policy_rolled_back")
    assert rolled_back["act"]["before_digest"] == activated["act"]["after_digest"]


def test_the_log_tells_who_minted_a_token_and_never_the_token(mesh: Mesh, auditor: Auditor) -> None:
    root = mesh.token(tools="core.echo", scopes="tools:call", tenant="walkers")
    issued = auditor.act(root, "token_issued")
    claims = claims_of(mesh, root)
    assert issued["act"]["resource"] == f"tokens/{claims['jti']}"
    assert issued["act"]["after_digest"] == "sha256:" + hashlib.sha256(root.encode()).hexdigest()
    assert (issued["caller"], issued["result_summary"]["subject"]) == ({"peer": "operator"}, ALICE)
    delegated = cli("token", "delegate", AGENT, "--token", root, "--raw", state=mesh.state).stdout.strip()
    given = auditor.act(delegated, "token_delegated")
    assert (given["caller"]["subject"], given["caller"]["token_id"]) == (ALICE, claims["jti"])
    assert given["result_summary"]["parent"] == f"tokens/{claims['jti']}"
    narrowed = cli("token", "narrow", "echo@1.0.0", "--token", delegated, "--raw", state=mesh.state).stdout.strip()
    assert auditor.act(narrowed, "token_narrowed")["caller"]["agent"] == AGENT
    cli("token", "revoke", root, "--reason", SECRET_REASON, state=mesh.state)
    revoked = auditor.act(root, "token_revoked")
    assert revoked["act"]["reason"].startswith("asked by ")
    everything = json.dumps([issued, given, revoked])
    assert [text for text in (root, delegated, root.split(".")[2], "AKIAIOSFODNN7EXAMPLE") if text in everything] == []


def test_a_tenant_reads_the_acts_of_its_own_callers_only(mesh: Mesh, auditor: Auditor) -> None:
    tokens = {
        tenant: mesh.token(tools="core.echo", scopes="tools:call,audit:read", tenant=tenant) for tenant in ("ta", "tb")
    }
    made = {
        tenant: cli("token", "delegate", AGENT, "--token", token, "--raw", state=mesh.state).stdout.strip()
        for tenant, token in tokens.items()
    }
    for token in made.values():
        auditor.act(token, "token_delegated")
    own, other = (Auditor(mesh, tokens[tenant]) for tenant in ("ta", "tb"))
    assert [act["event_class"] for act in own.acts(made["ta"])] == ["token_delegated"]
    assert (own.acts(made["tb"]), other.acts(made["ta"]), own.acts("policySets")) == ([], [], [])
    assert {act["caller"]["tenant"] for act in own.acts("tokens/")} == {"ta"}


def test_the_log_tells_who_registered_moved_and_held(mesh: Mesh, auditor: Auditor, tmp_path: Path) -> None:
    tool = "tools/core.echo/versions/1.0.0"
    declared = auditor.act(tool, "tool_declared")
    assert (declared["caller"]["peer"], declared["state"]) == ("executor", "available")
    assert declared["act"]["after_digest"] == declared["tool_digest"]
    assert auditor.act("namespaces/core", "namespace_changed")["caller"]["peer"] == "executor"
    cli("tools", "disable", "echo@1.0.0", "--reason", "walk", state=mesh.state)
    cli("tools", "enable", "echo@1.0.0", "--reason", "walked", state=mesh.state)
    states = [(act["previous_state"], act["state"], act["act"]["reason"]) for act in moves(auditor, tool, 2)]
    assert states == [("disabled", "available", "walked"), ("available", "disabled", "walk")]
    cli("audit", "hold", "place", "walk", "--to", "1", "--reason", "walk", state=mesh.state)
    cli("audit", "hold", "release", "walk", "--reason", "over", state=mesh.state)
    held = auditor.act("legalHolds/walk", "hold_released")
    assert (held["caller"]["peer"], held["act"]["reason"]) == ("operator", "over")


def moves(auditor: Auditor, tool: str, count: int) -> list[dict[str, Any]]:
    """Return the newest moves of a tool through its life cycle, once there are as many."""
    found: list[dict[str, Any]] = []

    def arrived() -> bool:
        found[:] = [act for act in auditor.acts(tool) if act["event_class"] == "tool_state_changed"]
        return len(found) >= count

    wait_until(arrived, f"moves of {tool}")
    return found[:count]
