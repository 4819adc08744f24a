"""A rule on its way from a file to the mesh, with the command line: checked, tried on the past, active, explained,
taken back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.mesh import Mesh, cli

RULES = """
@id("echoes-are-bound")
@effect("allow")
@reason("Echoes are shown without their text.")
@redact("/text")
permit (principal, action, resource) when { resource.tool_id == "echo" && principal.tenant == "bound" };

@id("no-bad-words")
@effect("deny")
@reason("Bad words are not echoed.")
forbid (principal, action == Action::"invoke", resource)
when { resource.tool_id == "echo" && context.arguments.facts.contains("/text=bad") };
"""
WRONG = RULES.replace("resource.tool_id ==", "resource.tool_identity ==", 1)


def policy(mesh: Mesh, *arguments: str, code: int = 0) -> Any:
    """Run `toolmesh policy` as the operator of the mesh."""
    ran = cli("policy", *arguments, state=mesh.state, check=False)
    assert ran.returncode == code, ran.stderr
    return ran


@pytest.fixture
def active(mesh: Mesh, tmp_path: Path) -> Iterator[str]:
    """The number of a set with the rules, active for the length of a test."""
    (tmp_path / "bound.cedar").write_text(RULES)
    put = json.loads(policy(mesh, "put", str(tmp_path), "-m", "scenario", "--json").stdout)
    number = put["policy_set"]["name"].removeprefix("policySets/")
    shown = policy(mesh, "activate", number).stdout
    assert '+ @id("no-bad-words")' in shown
    yield number
    policy(mesh, "rollback")


def echo(mesh: Mesh, token: str, text: str) -> Any:
    return mesh.rpc("tools.invoke", {"tool": "echo", "arguments": {"text": text}}, token=token).json()


def test_what_is_wrong_is_shown_in_the_file(mesh: Mesh, tmp_path: Path) -> None:
    (tmp_path / "wrong.cedar").write_text(WRONG)
    ran = policy(mesh, "validate", str(tmp_path / "wrong.cedar"), code=1)
    first, line, mark, *_ = ran.stderr.splitlines()
    assert first.startswith(f"{tmp_path}/wrong.cedar:6:")
    assert line[mark.index("^") :].startswith("tool_identity")


def test_a_bound_call_and_a_refused_one_explain_themselves(mesh: Mesh, active: str) -> None:
    token = mesh.token(tenant="bound")
    answered = echo(mesh, token, "hello")["result"]
    assert (answered["redaction_state"], answered["adjusted_result"]) == ("partial", ["/text"])
    assert "hello" not in json.dumps(answered)
    refused = echo(mesh, token, "bad")["error"]["data"]
    assert refused["reason"] == "PERMISSION_DENIED"
    told = policy(mesh, "explain", refused["metadata"]["decision"]).stdout
    assert "Bad words are not echoed." in told
    assert "bound.cedar:8" in told


def test_the_past_is_asked_again(mesh: Mesh, active: str) -> None:
    decision = echo(mesh, mesh.token(tenant="bound"), "bad")["error"]["data"]["metadata"]["decision"]
    replayed = json.loads(policy(mesh, "replay", "1", "--json").stdout)
    flips = {flip["decision"]: (flip["before"], flip["after"]) for flip in replayed["flips"]}
    assert flips[decision] == ("deny", "allow")
