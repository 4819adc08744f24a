"""An auditor's walk: what a call paid, and which file it changed from what to what, each by one command from the log.

Also what the author of a tool reads, and that refused tools are counted under their names.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.executors.failing import POLICIES, failing_mesh
from tests.harness.mesh import Mesh, cli
from tests.harness.stores import wait_until

PRICES = {"prices": [{"tools": ["failing.rewrites"], "cost_micros": 2000}]}
SCOPES = "tools:call,tools:read,tools:logs,audit:read"


def sha(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("walk")


@pytest.fixture(scope="module")
def mesh(notes: Path) -> Iterator[Mesh]:
    """A mesh with prices."""
    with failing_mesh(notes) as mesh:
        rules = notes / "priced"
        rules.mkdir()
        (rules / "failing.cedar").write_text(POLICIES)
        (rules / "limits.json").write_text(json.dumps(PRICES))
        put = told(mesh, "policy", "put", str(rules), "-m", "priced")
        cli("policy", "activate", put["policy_set"]["name"].removeprefix("policySets/"), state=mesh.state)
        yield mesh


def told(mesh: Mesh, *command: str) -> Any:
    return json.loads(cli(*command, "--json", state=mesh.state).stdout)


@pytest.fixture
def report(notes: Path) -> str:
    """The name of a note that no other test, and no repetition of this one, has used."""
    name = f"report-{uuid.uuid4().hex}"
    (notes / "notes" / name).write_text("old")
    return name


def rewrite(mesh: Mesh, token: str, report: str) -> Any:
    """Rewrite the note in a task, and under a key, of its name."""
    params = {"tool": "failing.rewrites", "arguments": {"name": report}, "idempotency_key": report, "task_id": report}
    answer = mesh.rpc("tools.invoke", params, token=token).json()
    assert "result" in answer, answer
    return answer["result"]


def test_changes_costs_and_lines_of_a_call_are_each_one_command_away(mesh: Mesh, report: str) -> None:
    token = mesh.token(scopes=SCOPES, trust="80")
    result = rewrite(mesh, token, report)
    assert rewrite(mesh, token, report)["replayed"]
    invocation = result["invocation_id"]
    assert {(cost["category"], int(cost["amount_micros"])) for cost in result["execution"]["costs"]} == {
        ("price", 2000),
        ("storage_io", 7),
    }
    assert {effect["operation"] for effect in result["declared_effects"]} == {"create", "update"}

    changes = told(mesh, "audit", "changes", f"notes/{report}*")["changes"]
    assert {(each["resource"], each["operation"], each["digest_before"], each["digest_after"]) for each in changes} == {
        (f"file:notes/{report}", "update", sha("old"), sha("new")),
        (f"file:notes/{report}-made", "create", "", sha("made")),
    }
    assert {each["invocation_id"] for each in changes} == {invocation}
    assert sha("new") in cli("audit", "changes", f"notes/{report}", state=mesh.state).stdout

    paid = told(mesh, "audit", "costs", "--task", report)
    assert (paid["total_micros"], [call["costs"] for call in paid["calls"]]) == (
        2007,
        [{"price": 2000, "storage_io": 7}],
    )

    def counted() -> Any:
        entries = told(mesh, "usage", "top", "--by", "cost", "--of", "tasks")["entries"]
        return [entry["usage"] for entry in entries if entry["name"] == report and int(entry["usage"]["calls"]) == 2]

    wait_until(counted, "the count of both calls")
    assert [int(usage["cost_micros"]) for usage in counted()] == [2007]
    assert "failing.rewrites" in cli("usage", "top", "--by", "cost", state=mesh.state).stdout

    def logged() -> Any:
        return told(mesh, "logs", "--tool", "failing.rewrites", "--invocation", invocation)["logs"]

    wait_until(logged, "the log of the call")
    [log] = logged()
    assert log["lines"][0]["text"] == f"rewrites {report}"
    assert "alice@example.com" not in json.dumps(log)
    assert log in told(mesh, "tools", "logs", "failing.rewrites")["logs"]


def test_another_tenant_and_a_token_without_the_tool_read_no_lines(mesh: Mesh, report: str) -> None:
    rewrite(mesh, mesh.token(scopes=SCOPES, trust="80"), report)
    other = mesh.token(scopes=SCOPES, tenant="other")
    shown = cli("tools", "logs", "failing.rewrites", "--token", other, "--json", state=mesh.state)
    assert json.loads(shown.stdout) == {"logs": []}
    for token in (mesh.token(scopes=SCOPES, tools="core.echo"), mesh.token()):
        refused = cli("tools", "logs", "failing.rewrites", "--token", token, "--json", state=mesh.state, check=False)
        assert refused.returncode != 0
        assert f"rewrites {report}" not in refused.stdout


def test_calls_of_tools_that_may_not_run_are_counted_under_them(mesh: Mesh) -> None:
    token = mesh.token(scopes=SCOPES)
    cli("tools", "quarantine", "failing.fine@1.0.0", "--reason", "a test", state=mesh.state)

    def refused() -> Any:
        answer = mesh.rpc("tools.invoke", {"tool": "failing.fine", "arguments": {}}, token=token).json()
        return answer.get("error", {}).get("data", {}).get("invocation_id")

    wait_until(refused, "the quarantine")
    invocation = refused()
    [record] = told(mesh, "audit", "tail", "--invocation", invocation)["records"]
    assert record["record"]["tool_version"] == "tools/failing.fine/versions/1.0.0"
    assert record["record"]["tool_digest"].startswith("sha256:")
    wait_until(lambda: told(mesh, "usage", "tool", "failing.fine")["usage"]["total"].get("not_started"), "the count")
