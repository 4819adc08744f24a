"""`toolmesh token`: minted as wished, shown without pretending to verify."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
import typer
from toolmesh.authz.v1 import authz_service_pb2, token_service_pb2
from toolmesh_sdk import ProofKey, Reason
from toolmesh_sdk.cli.inputs.login_key import login_key_file
from toolmesh_sdk.cli.inputs.timestamps import parse_seconds
from toolmesh_sdk.cli.views.token_report import describe_claims

from libs.common.errors import MeshError, Violation


def test_raw_prints_just_the_token(toolmesh: Any, mesh: Any) -> None:
    ran = toolmesh(
        *("token", "mint", "--raw", "--sub", "did:web:x:alice", "--tools", "echo, arith*", "--ttl", "2h"),
        *("--scopes", "tools:call", "--tenant", "acme", "--trust", "7", "--audience", "toolmesh,other"),
    )
    assert (ran.exit_code, ran.stderr, ran.stdout.count("\n"), ran.stdout.count(".")) == (0, "", 1, 2)
    request = mesh.of("IssueToken")[0].request
    assert [grant.tool for grant in request.tools] == ["echo", "arith*"]
    assert (request.subject, request.lifetime.seconds, request.tenant) == ("did:web:x:alice", 7200, "acme")
    assert (list(request.scopes), request.trust_level, list(request.audiences)) == (
        *(["tools:call"], 7),
        ["toolmesh", "other"],
    )


@pytest.fixture
def config_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config"


def test_a_token_of_another_issuer_is_exchanged_without_one_of_the_mesh(
    toolmesh: Any, mesh: Any, signer: Any, config_home: Path
) -> None:
    new = signer.mint("did:web:x:alice")
    mesh.answer("ExchangeToken", token_service_pb2.ExchangeTokenResponse(token=new))
    ran = toolmesh("token", "exchange", "-", "--scopes", "tools:call", "--ttl", "5m", "--raw", stdin="a.b.c\n")
    assert (ran.exit_code, ran.stdout) == (0, new + "\n")
    [seen] = mesh.of("ExchangeToken")
    assert (seen.request.subject_token, list(seen.request.scopes)) == ("a.b.c", ["tools:call"])
    assert (seen.request.lifetime.seconds, seen.request.HasField("confirmation")) == (300, False)
    assert "authorization" not in seen.metadata
    assert not login_key_file().exists()


@pytest.mark.parametrize(("verb", "method"), [(("mint",), "IssueToken"), (("exchange", "a.b.c"), "ExchangeToken")])
def test_a_token_is_bound_to_the_login_key(
    toolmesh: Any, mesh: Any, signer: Any, config_home: Path, verb: tuple[str, ...], method: str
) -> None:
    mesh.answer("ExchangeToken", token_service_pb2.ExchangeTokenResponse(token=signer.mint()))
    for _ in range(2):
        assert toolmesh("token", *verb, "--dpop", "--raw").exit_code == 0
    thumbprints = {seen.request.confirmation.jwk_thumbprint for seen in mesh.of(method)}
    assert thumbprints == {ProofKey(login_key_file()).thumbprint}
    assert toolmesh("token", *verb, "--dpop", "--proof", "jkt:" + "a" * 43).exit_code == 2


def test_claims_are_shown_beside_the_token(toolmesh: Any) -> None:
    ran = toolmesh("token", "mint", "--sub", "did:web:x:alice")
    assert ran.stdout.count(".") == 2
    assert "did:web:x:alice" in ran.stderr
    document = json.loads(toolmesh("token", "mint", "--sub", "did:web:x:bob", "--json").stdout)
    assert set(document) == {"token", "claims"}
    assert document["claims"]["sub"] == "did:web:x:bob"


@pytest.mark.parametrize(
    ("failure", "code"), [(MeshError(Reason.PEER_NOT_ALLOWED), 4), (MeshError(Reason.INVALID_REQUEST), 1)]
)
def test_a_refusal_is_no_token(toolmesh: Any, mesh: Any, failure: Any, code: int) -> None:
    mesh.answer("IssueToken", failure)
    ran = toolmesh("token", "mint", "--raw")
    assert (ran.exit_code, ran.stdout) == (code, "")


def test_a_token_is_decoded_and_the_mesh_is_asked_about_it(toolmesh: Any, mesh: Any, signer: Any) -> None:
    mesh.answer("IntrospectToken", authz_service_pb2.IntrospectTokenResponse(active=False, error_code="E3212"))
    token = signer.mint("did:web:x:alice")
    ran = toolmesh("token", "inspect", "-", "--json", stdin=token + "\n")
    document = json.loads(ran.stdout)
    assert (document["verified"], document["claims"]["sub"]) == (False, "did:web:x:alice")
    assert document["introspection"] == {"active": False, "error_code": "E3212"}
    assert mesh.of("IntrospectToken")[0].request.token == token
    shown = toolmesh("token", "inspect", token)
    assert "not verified" in shown.stderr
    assert "E3212" in shown.stderr


def test_without_a_mesh_a_token_is_still_decoded(toolmesh: Any, mesh: Any, signer: Any, tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nothing")
    document = json.loads(toolmesh("token", "inspect", signer.mint(), "--state", nowhere, "--json").stdout)
    assert document["introspection"] is None
    mesh.answer("IntrospectToken", grpc.StatusCode.PERMISSION_DENIED)
    document = json.loads(toolmesh("token", "inspect", signer.mint(), "--json").stdout)
    assert document["introspection"]["active"] is None


@pytest.mark.parametrize("text", ["nonsense", "a.b.c", "a.IjEi.c", "a.@@.c"])
def test_what_is_no_token_is_wrong_usage(toolmesh: Any, text: str) -> None:
    assert toolmesh("token", "inspect", text).exit_code == 2


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("15m", 900), ("1h", 3600), ("2d", 172800)])
def test_durations_are_parsed_with_units(text: str, seconds: int) -> None:
    assert parse_seconds(text, "--ttl") == seconds


@pytest.mark.parametrize("text", ["", "0", "-1h", "1.5h", "soon", "1w"])
def test_other_lifetimes_are_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_seconds(text, "--ttl")


def test_the_claims_of_a_token_are_described() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    claims = {
        "tier": "invocation",
        "sub": "did:web:x:alice",
        "agent": "did:web:x:bot",
        "act": [{"sub": "did:web:x:alice", "jti": "t1"}, {"sub": "did:web:x:bot", "jti": "t2"}],
        "tools": [{"tool": "echo", "version": "^1"}, {"tool": "arith*", "version": ""}],
        "scope": "a b",
        "res": ["file:/srv/*"],
        "args": [{"tool": "echo", "schema": {"maxProperties": 1}}],
        "budget": {"calls": 3},
        "nbf": now.timestamp(),
        "exp": now.timestamp() + 90,
        "jti": "t3",
        "cnf": {"jkt": "k"},
    }
    rows = dict(describe_claims(claims, now))
    assert rows["tier"].startswith("invocation")
    assert (rows["chain"], rows[""]) == ("1. did:web:x:alice  (t1)", "2. did:web:x:bot  (t2)")
    assert (rows["may call"], rows["scopes"], rows["budget"]) == ("echo at ^1, arith*", "a, b", "calls 3")
    assert (rows["only on"], rows["only with"]) == ("file:/srv/*", 'echo: {"maxProperties": 1}')
    assert rows["until"] == "2026-01-01T00:01:30Z  (1 min 30 s left)"
    assert rows["proof"] == '{"jkt": "k"}'
    assert "expired" in dict(describe_claims({"exp": 0}, now))["until"]


@pytest.mark.parametrize(
    "odd", [{"act": 7}, {"tools": "x"}, {"exp": "soon"}, {"exp": 1e300}, {"args": ["x"]}, {"tier": []}]
)
def test_odd_claims_are_shown_as_they_are(odd: dict[str, Any]) -> None:
    assert dict(describe_claims(odd, datetime(2026, 1, 1, tzinfo=UTC)))


def test_a_minted_token_carries_every_bound_that_was_said(toolmesh: Any, mesh: Any, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"maxProperties": 1}')
    ran = toolmesh(
        *("token", "mint", "--raw", "--resources", "file:/srv/*, db:main", "--arguments", f"echo=@{schema}"),
        *("--arguments", 'arith*={"required": ["a"]}', "--calls", "3", "--cost-micros", "0", "--running", "90s"),
        *("--depth", "0", "--session", "s1", "--proof", "jkt:" + "a" * 43),
    )
    assert ran.exit_code == 0
    request = mesh.of("IssueToken")[0].request
    assert list(request.resource_constraints) == ["file:/srv/*", "db:main"]
    assert [(c.tool, json.loads(c.schema)) for c in request.argument_constraints] == [
        ("echo", {"maxProperties": 1}),
        ("arith*", {"required": ["a"]}),
    ]
    assert (request.budget.calls, request.budget.cost_micros, request.budget.running_time.seconds) == (3, 0, 90)
    assert (request.HasField("delegation_depth"), request.delegation_depth, request.session_id) == (True, 0, "s1")
    assert request.confirmation.jwk_thumbprint == "a" * 43


@pytest.mark.parametrize(
    "wrong",
    [
        *(["--arguments", "echo"], ["--arguments", "echo=[1]"], ["--arguments", "e=@/no"], ["--proof", "kid:x"]),
        *(["--calls", "9" * 20], ["--cost-micros", "9" * 20], ["--ttl", "9" * 20], ["--running", "9" * 5_000 + "d"]),
    ],
    ids=lambda wrong: " ".join(wrong)[:30],
)
def test_bounds_that_cannot_be_read_are_wrong_usage(toolmesh: Any, wrong: list[str]) -> None:
    assert toolmesh("token", "mint", *wrong).exit_code == 2


def test_all_argument_schemas_of_a_tool_apply(toolmesh: Any, mesh: Any) -> None:
    ran = toolmesh(
        *(
            "token",
            "mint",
            "--raw",
            "--arguments",
            'pay={"required": ["to"]}',
            "--arguments",
            'echo={"maxProperties": 1}',
        ),
        *("--arguments", 'pay={"maxProperties": 2}'),
    )
    assert ran.exit_code == 0
    constraints = mesh.of("IssueToken")[0].request.argument_constraints
    assert [(each.tool, json.loads(each.schema)) for each in constraints] == [
        ("pay", {"allOf": [{"required": ["to"]}, {"maxProperties": 2}]}),
        ("echo", {"maxProperties": 1}),
    ]


@pytest.mark.parametrize("text", ['pay={"maximum": 1, "maximum": 9}', "={}", "pay=", ""])
def test_a_constraint_of_which_a_part_would_be_lost_is_wrong_usage(toolmesh: Any, mesh: Any, text: str) -> None:
    assert toolmesh("token", "mint", "--arguments", text).exit_code == 2
    assert mesh.of("IssueToken") == []


EMPTY = ["", " ", ","]


@pytest.mark.parametrize("empty", EMPTY)
@pytest.mark.parametrize(
    "option", ["tools", "tenant", "groups", "audience", "resources", "running", "session", "proof"]
)
def test_an_empty_bound_is_a_usage_error(toolmesh: Any, mesh: Any, option: str, empty: str) -> None:
    ran = toolmesh("token", "mint", f"--{option}", empty)
    assert (ran.exit_code, f"--{option}" in ran.stderr) == (2, True)
    assert mesh.of("IssueToken") == []


@pytest.mark.parametrize("empty", EMPTY)
@pytest.mark.parametrize("option", ["tools", "ttl", "resources", "session", "proof", "audience", "groups", "running"])
def test_scopes_are_not_delegated_by_default(toolmesh: Any, mesh: Any, signer: Any, option: str, empty: str) -> None:
    ran = toolmesh("token", "delegate", "did:web:x:bot", "--token", signer.mint(), f"--{option}", empty)
    assert (ran.exit_code, f"--{option}" in ran.stderr) == (2, True)
    assert mesh.of("DelegateToken") == []


def test_a_budget_of_running_time_may_be_none(toolmesh: Any, mesh: Any) -> None:
    assert toolmesh("token", "mint", "--raw", "--running", "0", "--calls", "0").exit_code == 0
    budget = mesh.of("IssueToken")[0].request.budget
    assert (budget.HasField("running_time"), budget.running_time.seconds, budget.HasField("calls")) == (True, 0, True)


@pytest.mark.parametrize("option", ["--running", "--ttl"])
def test_a_span_that_cannot_be_read_is_blamed_on_its_own_option(toolmesh: Any, option: str) -> None:
    ran = toolmesh("token", "mint", option, "x")
    assert ran.exit_code == 2
    assert [each in ran.stderr for each in ("--running", "--ttl")] == [option == "--running", option == "--ttl"]


def test_a_token_is_passed_on_through_the_edge(toolmesh: Any, mesh: Any, signer: Any) -> None:
    mine, made = signer.mint(), signer.mint("did:web:x:alice")
    mesh.answer("DelegateToken", token_service_pb2.DelegateTokenResponse(token=made))
    ran = toolmesh(
        *("token", "delegate", "did:web:x:bot", "--token", mine, "--tools", "echo@^1", "--scopes", "tools:call"),
        *("--ttl", "10m", "--trust", "0", "--calls", "2", "--depth", "1", "--bind-agent-key", "--raw"),
    )
    assert (ran.exit_code, ran.stdout.strip()) == (0, made)
    call = mesh.of("DelegateToken")[0]
    assert call.metadata["authorization"] == f"Bearer {mine}"
    part = call.request.part
    assert (call.request.agent, call.request.delegation_depth) == ("did:web:x:bot", 1)
    assert call.request.bind_to_agent_key
    assert [(g.tool, g.version_constraint) for g in part.tools] == [("echo", "^1")]
    assert (list(part.scopes), part.lifetime.seconds, part.budget.calls) == (["tools:call"], 600, 2)
    assert (part.HasField("trust_level"), part.trust_level) == (True, 0)


def test_omitted_filters_are_not_sent(toolmesh: Any, mesh: Any, signer: Any) -> None:
    mesh.answer("DelegateToken", token_service_pb2.DelegateTokenResponse(token=signer.mint()))
    assert toolmesh("token", "delegate", "did:web:x:bot", "--token", signer.mint()).exit_code == 0
    request = mesh.of("DelegateToken")[0].request
    assert request == token_service_pb2.DelegateTokenRequest(agent="did:web:x:bot", part=token_service_pb2.Part())


def test_a_token_is_narrowed_to_one_tool(toolmesh: Any, mesh: Any, signer: Any) -> None:
    mesh.answer("NarrowToken", token_service_pb2.NarrowTokenResponse(token=signer.mint()))
    ran = toolmesh("token", "narrow", "echo@1.0.0", "--token", signer.mint(), "--ttl", "30s", "--json")
    assert set(json.loads(ran.stdout)) == {"token", "claims"}
    part = mesh.of("NarrowToken")[0].request.part
    assert [(g.tool, g.version_constraint) for g in part.tools] == [("echo", "1.0.0")]
    assert part.lifetime.seconds == 30


def test_a_refused_delegation_names_every_dimension(toolmesh: Any, mesh: Any, signer: Any) -> None:
    violations = [Violation("scopes", "authority.exceeded", "m"), Violation("trust_level", "authority.exceeded", "m")]
    mesh.answer("DelegateToken", MeshError(Reason.AUTHORITY_EXCEEDED, violations=violations))
    ran = toolmesh("token", "delegate", "did:web:x:bot", "--token", signer.mint())
    assert ran.exit_code == 4
    assert "scopes" in ran.stderr
    assert "trust_level" in ran.stderr


def test_the_operator_revokes_a_token_a_subject_or_a_key(toolmesh: Any, mesh: Any, signer: Any) -> None:
    token = signer.mint(jti="t1")
    done = token_service_pb2.Revocation(name="revocations/7", revoked_by="operator")
    mesh.answer("RevokeToken", token_service_pb2.RevokeTokenResponse(revocation=done))
    for arguments in ([token], ["t2", "--reason", "lost"], ["--subject", "did:web:x:bot"], ["--key", "k1"]):
        ran = toolmesh("token", "revoke", *arguments)
        assert (ran.exit_code, "revocations/7" in ran.stderr) == (0, True)
    first, second, third, fourth = (call.request for call in mesh.of("RevokeToken"))
    assert (first.token_id, second.token_id, second.reason) == ("t1", "t2", "lost")
    assert (third.subject, fourth.key_id) == ("did:web:x:bot", "k1")
    assert "operator" in mesh.of("RevokeToken")[0].peer


def test_a_holder_revokes_on_the_tokens_own_authority(toolmesh: Any, mesh: Any, signer: Any) -> None:
    mesh.answer("RevokeToken", token_service_pb2.RevokeTokenResponse())
    mine = signer.mint()
    assert toolmesh("token", "revoke", "t1", "--token", mine, "--json").exit_code == 0
    assert mesh.of("RevokeToken")[0].metadata["authorization"] == f"Bearer {mine}"


@pytest.mark.parametrize("arguments", [[], ["t1", "--key", "k"], ["--subject", "did:web:x", "--key", "k"]])
def test_exactly_one_revocation_target_is_required(toolmesh: Any, arguments: list[str]) -> None:
    assert toolmesh("token", "revoke", *arguments).exit_code == 2
