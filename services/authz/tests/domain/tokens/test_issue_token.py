"""IssueToken: accepted requests, claims and ledger entries."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from libs.common.auth.claims import MAX_CONSTRAINTS
from libs.common.auth.identity import ArgumentConstraint, Budget, Grant
from libs.common.errors import MeshError, Reason
from libs.common.testing.clock import ManualClock
from services.authz.domain.model import TokenRequest
from services.authz.domain.tokens.issue_token import DEFAULT_DEPTH, DEFAULT_LIFETIME, IssueToken
from services.authz.tests.token_issuer import ALICE, Issuer, ListLedger

ECHO = TokenRequest(subject=ALICE, tools=(Grant("echo"),))


@pytest.fixture
def issuer(clock: ManualClock) -> Issuer:
    return Issuer(clock)


@pytest.fixture
def ledger(issuer: Issuer) -> ListLedger:
    return issuer.ledger


@pytest.fixture
def issue(issuer: Issuer) -> IssueToken:
    return issuer.issue


async def violations(issue: IssueToken, asked: TokenRequest) -> list[tuple[str, str]]:
    with pytest.raises(MeshError) as caught:
        await issue.execute(asked)
    assert caught.value.reason is Reason.INVALID_REQUEST
    return [(violation.path, violation.rule) for violation in caught.value.violations]


async def test_the_claims_are_exactly_the_requested_ones(issue: IssueToken, clock: ManualClock) -> None:
    asked = TokenRequest(
        subject=ALICE,
        tools=(Grant("acme.*", "^1.2"), Grant("echo")),
        scopes=("tools:call", "audit:read"),
        lifetime=90.9,
        tenant="acme",
        groups=("ops",),
        trust_level=70,
        audiences=("toolmesh", "other"),
    )
    claims = dict((await issue.execute(asked)).claims)
    assert len(claims.pop("jti")) == 36
    now = int(clock.now().timestamp())
    assert claims == {
        "iss": "https://issuer.test",
        "sub": ALICE,
        "aud": ["toolmesh", "other"],
        "iat": now,
        "nbf": now,
        "exp": now + 90,
        "tier": "user",
        "scope": "audit:read tools:call",
        "tools": [{"tool": "acme.*", "version": "^1.2"}, {"tool": "echo", "version": ""}],
        "tenant": "acme",
        "groups": ["ops"],
        "trust": 70,
        "depth": DEFAULT_DEPTH,
        "act": [],
    }


async def test_a_token_is_valid_for_an_hour_in_this_mesh_by_default(issue: IssueToken) -> None:
    claims = (await issue.execute(ECHO)).claims
    assert claims["exp"] - claims["iat"] == DEFAULT_LIFETIME
    assert claims["aud"] == "toolmesh"


async def test_the_default_lifetime_bows_to_a_lower_limit(issue: IssueToken) -> None:
    strict = replace(issue, max_lifetime=60)
    claims = (await strict.execute(ECHO)).claims
    assert claims["exp"] - claims["iat"] == 60


async def test_a_grant_of_nothing_is_refused(issue: IssueToken, ledger: ListLedger) -> None:
    assert await violations(issue, TokenRequest(subject=ALICE)) == [("tools", "grant.empty")]
    assert ledger.entries == []


@pytest.mark.parametrize("lifetime", [0.5, 86_400.5, 86_401, 2.0**63])
async def test_a_lifetime_beyond_the_limits_is_refused(issue: IssueToken, lifetime: float) -> None:
    asked = TokenRequest(subject=ALICE, scopes=("a",), lifetime=lifetime)
    assert await violations(issue, asked) == [("lifetime", "lifetime.limit")]


async def test_everything_that_is_wrong_is_named_at_once(issue: IssueToken) -> None:
    asked = TokenRequest(
        subject=ALICE,
        tools=(Grant("ab"), Grant("echo", "^^1"), Grant("echo", "latest"), Grant("a*", "1.x")),
        lifetime=1e9,
        audiences=("",),
    )
    assert await violations(issue, asked) == [
        ("lifetime", "lifetime.limit"),
        ("audiences[0]", "audience.empty"),
        ("tools[0].tool", "grant.tool"),
        ("tools[1].version_constraint", "grant.version"),
        ("tools[2].version_constraint", "grant.version"),
    ]


@pytest.mark.parametrize("pattern", ["*", "echo", "arith*", "acme.*", "*.read_file", "core.echo"])
async def test_patterns_of_the_contract_are_granted(issue: IssueToken, pattern: str) -> None:
    await issue.execute(TokenRequest(subject=ALICE, tools=(Grant(pattern, ">=1.2 <2"),)))


async def test_a_token_that_no_verifier_would_read_is_not_minted(issue: IssueToken, ledger: ListLedger) -> None:
    asked = TokenRequest(subject=ALICE, tools=tuple(Grant(f"a{'b' * 200}{n}") for n in range(200)))
    assert await violations(issue, asked) == [("tools", "token.size")]
    assert ledger.entries == []


async def test_the_ledger_knows_the_token_but_never_holds_it(issue: IssueToken, ledger: ListLedger) -> None:
    issued = await issue.execute(TokenRequest(subject=ALICE, tools=(Grant("echo", "1.x"),), scopes=("a",)))
    (entry,) = ledger.entries
    assert (entry.token_id, entry.subject, entry.tier, entry.key_id) == (issued.claims["jti"], ALICE, "user", "plain")
    assert (entry.scopes, entry.tools) == (("a",), (Grant("echo", "1.x"),))
    assert entry.issued_at.timestamp() == issued.claims["iat"]
    assert entry.expires_at.timestamp() == issued.claims["exp"]
    assert (entry.agent, entry.parent_id, entry.root_id) == ("", "", entry.token_id)
    assert issued.token not in repr(entry)
    assert issued.token not in repr(issued)


async def test_no_token_leaves_without_its_entry(issue: IssueToken, ledger: ListLedger) -> None:
    ledger.down = True
    with pytest.raises(MeshError) as caught:
        await issue.execute(ECHO)
    assert caught.value.reason is Reason.SERVICE_UNAVAILABLE


async def test_every_requested_bound_is_in_the_claims(issue: IssueToken) -> None:
    asked = TokenRequest(
        subject=ALICE,
        scopes=("a",),
        resources=("file:/srv/*",),
        argument_constraints=(ArgumentConstraint("echo", b'{ "required":["text"], "maxProperties":1.0 }'),),
        budget=Budget(calls=3, running_ms=1500),
        depth=0,
        confirmation="jkt:" + "a" * 43,
        session_id="s1",
    )
    issued = await issue.execute(asked)
    claims = issued.claims
    assert (claims["res"], claims["depth"], claims["session"]) == (["file:/srv/*"], 0, "s1")
    assert claims["args"] == [{"tool": "echo", "schema": {"required": ["text"], "maxProperties": 1}}]
    assert claims["budget"] == {"calls": 3, "running_ms": 1500}
    assert claims["cnf"] == {"jkt": "a" * 43}
    assert json.loads(issued.token) == claims


DOUBLING = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)}
UNCHECKABLE = [
    b"",
    b"[]",
    b"nonsense",
    b'{"a":1,"a":2}',
    b'{"type":7}',
    b'{"$ref":"https://x.example"}',
    b" " * 9000,
    b'{"pattern":"^(?=(a+)+$)(a+)+b$"}',
    json.dumps({"$ref": "#/$defs/a0", "$defs": {**DOUBLING, "a40": {}}}).encode(),
]


@pytest.mark.parametrize("schema", UNCHECKABLE)
async def test_a_constraint_that_could_not_be_checked_is_refused(issue: IssueToken, schema: bytes) -> None:
    good = ArgumentConstraint("echo", b"{}")
    asked = TokenRequest(subject=ALICE, scopes=("a",), argument_constraints=(good, ArgumentConstraint("echo", schema)))
    assert await violations(issue, asked) == [("argument_constraints[1]", "constraint.schema")]


async def test_the_constraints_of_a_token_are_bounded_together(issue: IssueToken) -> None:
    def asked(*schemas: object) -> TokenRequest:
        constraints = tuple(ArgumentConstraint("echo", json.dumps(schema).encode()) for schema in schemas)
        return TokenRequest(subject=ALICE, scopes=("a",), argument_constraints=constraints)

    costly = [{"allOf": [{"enum": [*range(900)]}], "maxProperties": n} for n in range(4)]
    assert await violations(issue, asked(*costly)) == [("argument_constraints", "constraint.size")]
    doubled = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(10)}
    costly = [{"$ref": "#/$defs/a0", "$defs": {**doubled, "a10": {}}, "title": str(n)} for n in range(8)]
    assert await violations(issue, asked(*costly)) == [("argument_constraints", "constraint.cost")]


NO_TOOLS = ["Pay", "pay!", "ab", "", "tools/acme.pay", "acme.Pay*", "acme.pay.now", "pay\n", "p\u0661y", "x" * 321]


@pytest.mark.parametrize("tool", NO_TOOLS)
async def test_a_constraint_or_grant_that_no_tool_can_match_is_refused_with_its_place(
    issue: IssueToken, ledger: ListLedger, tool: str
) -> None:
    good = ArgumentConstraint("acme.*", b"{}")
    asked = replace(ECHO, argument_constraints=(good, ArgumentConstraint(tool, b"{}")))
    assert await violations(issue, asked) == [("argument_constraints[1].tool", "grant.tool")]
    assert await violations(issue, replace(ECHO, tools=(Grant(tool),))) == [("tools[0].tool", "grant.tool")]
    assert ledger.entries == []


@pytest.mark.parametrize("tool", ["*", "echo", "acme.*", "*.pay", "acme.pay_*"])
async def test_a_constraint_may_be_on_any_tool_that_there_can_be(issue: IssueToken, tool: str) -> None:
    await issue.execute(replace(ECHO, argument_constraints=(ArgumentConstraint(tool, b"{}"),)))


async def test_more_constraints_than_a_token_carries_are_refused(issue: IssueToken) -> None:
    many = tuple(ArgumentConstraint("echo", b'{"maxProperties":%d}' % n) for n in range(MAX_CONSTRAINTS + 1))
    await issue.execute(replace(ECHO, argument_constraints=many[1:]))
    asked = replace(ECHO, argument_constraints=many)
    assert await violations(issue, asked) == [("argument_constraints", "constraint.count")]


async def test_whatever_else_no_verifier_would_accept_is_an_invalid_request_too(
    issue: IssueToken, ledger: ListLedger
) -> None:
    assert await violations(issue, replace(ECHO, tenant="x" * 129)) == [("", "token.claims")]
    assert ledger.entries == []
