"""Every way in which authority can be refused, E3201 to E3216, through the edge of a running mesh. (E3211 needs a
mesh with a hook, and is
among the cases of test_every_execution_code.)"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from toolmesh.authz.v1 import authz_service_pb2 as authz_pb
from toolmesh.authz.v1 import authz_service_pb2_grpc as authz_rpc
from toolmesh.authz.v1 import policy_service_pb2 as policy_pb
from toolmesh.authz.v1 import policy_service_pb2_grpc as policy_rpc
from toolmesh.authz.v1 import token_service_pb2 as pb
from toolmesh.authz.v1 import token_service_pb2_grpc as rpc
from toolmesh.authz.v1.capability_token_pb2 import Budget, Confirmation, ToolGrant
from toolmesh.common.v1.error_table import ROWS

from libs.common.errors import Reason
from libs.common.ids import new_id
from tests.harness.clients.holder import Holder
from tests.harness.executors.replicas import code_of
from tests.harness.mesh import Mesh, invoke

PERSON = "did:web:toolmesh.local:users:"
ERRING, DENIED, ASKING = (PERSON + name + new_id() for name in ("erring-", "denied-", "asking-"))
POLICIES = f"""
@id("refusals-err") @effect("deny") @reason("Never reached.")
forbid (principal == User::"{ERRING}", action == Action::"invoke", resource)
when {{ principal.trust_level * 9223372036854775807 > 0 }};

@id("refusals-deny") @effect("deny") @reason("This person may call nothing.")
forbid (principal == User::"{DENIED}", action == Action::"invoke", resource);

@id("refusals-ask") @effect("needs_approval") @reason("Somebody must look at this.")
forbid (principal == User::"{ASKING}", action == Action::"invoke_without_approval", resource);
"""


@dataclass
class Refusals:
    """A mesh, and the ways to be refused by it."""

    mesh: Mesh
    operator: grpc.Channel
    edge: grpc.Channel
    forged: Callable[..., str]
    """Signs anything with the mesh's own key."""

    def mint(self, subject: str = "", **changes: Any) -> str:
        asked = {"tools": [ToolGrant(tool="*")], "scopes": ["tools:call", "tools:read"], **changes}
        request = authz_pb.IssueTokenRequest(subject=subject or PERSON + new_id(), **asked)
        return authz_rpc.AuthzServiceStub(self.operator).IssueToken(request, timeout=10).token

    def invoking(self, token: str) -> tuple[str, str]:
        """Call a tool over HTTP and over gRPC; return the codes of both refusals."""
        answer = self.mesh.rpc("tools.invoke", {"tool": "echo", "arguments": {"text": "x"}}, token=token)
        return answer.json().get("error", {}).get("data", {}).get("code", ""), self.code(
            lambda: invoke(self.edge, "echo", b'{"text":"x"}', token=token)
        )

    def code(self, call: Callable[[], Any]) -> str:
        try:
            call()
        except grpc.RpcError as error:
            return code_of(error)
        return ""

    def delegating(self, agent: str, part: pb.Part) -> tuple[str]:
        request, metadata = pb.DelegateTokenRequest(agent=agent, part=part), bearer(self.mint())
        return (
            self.code(lambda: rpc.TokenServiceStub(self.edge).DelegateToken(request, metadata=metadata, timeout=10)),  # type: ignore[arg-type]
        )

    def revoked(self) -> str:
        token = self.mint()
        assert self.invoking(token) == ("", "")
        request = pb.RevokeTokenRequest(token_id=jwt.decode(token, options={"verify_signature": False})["jti"])
        rpc.TokenServiceStub(self.edge).RevokeToken(request, metadata=bearer(token), timeout=10)  # type: ignore[arg-type]
        end = time.monotonic() + 1
        while self.invoking(token) == ("", ""):
            assert time.monotonic() < end
        return token

    def putting_nonsense(self) -> tuple[str]:
        document = policy_pb.PolicyDocument(name="nonsense.cedar", text="permit (principal, action, resource")
        request = policy_pb.PutPolicyRequest(documents=[document])
        metadata = bearer(self.mint(scopes=["policies:admin"]))
        stub = policy_rpc.PolicyServiceStub(self.edge)
        return (self.code(lambda: stub.PutPolicy(request, metadata=metadata, timeout=10)),)  # type: ignore[arg-type]

    def spent(self) -> str:
        token = self.mint(budget=Budget(calls=1))
        invoke(self.edge, "echo", b'{"text":"x"}', token=token)
        return token


def bearer(token: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {token}")]


@pytest.fixture(scope="module")
def refusals(mesh: Mesh) -> Iterator[Refusals]:
    """The shared mesh with three more rules, which concern no other test and are removed again."""
    folder = mesh.state / "secrets" / "signing-keys"
    key: Any = serialization.load_pem_private_key(sorted(folder.glob("*.pem"))[-1].read_bytes(), None)
    kid = jwt.get_unverified_header(mesh.token())["kid"]

    def forged(**changes: Any) -> str:
        now = int(time.time())
        claims = {
            "iss": mesh.runtime["issuer"], "aud": mesh.runtime["audience"], "sub": PERSON + "forger", "jti": new_id(),
            "iat": now - 60, "exp": now + 600, "tier": "user", "scope": "tools:call", "tools": [{"tool": "*"}],
            **changes,
        }  # fmt: skip
        return jwt.encode(claims, key, "RS256", {"kid": kid})

    with mesh.direct_channel("authz", "operator") as operator, mesh.edge_channel() as edge:
        policies = policy_rpc.PolicyServiceStub(operator)
        document = policy_pb.PolicyDocument(name="refusals.cedar", text=POLICIES)
        put = policies.PutPolicy(policy_pb.PutPolicyRequest(documents=[document]), timeout=20).policy_set
        policies.ActivatePolicySet(policy_pb.ActivatePolicySetRequest(name=put.name), timeout=20)
        yield Refusals(mesh, operator, edge, forged)
        policies.RollbackPolicySet(policy_pb.RollbackPolicySetRequest(), timeout=20)


def by_stranger(refusals: Refusals, signer: Any) -> str:
    kid = jwt.get_unverified_header(refusals.mint())["kid"]
    runtime = refusals.mesh.runtime
    return type(signer)(kid=kid, key=signer.key).mint(iss=runtime["issuer"], aud=runtime["audience"])  # type: ignore[no-any-return]


Case = Callable[[Refusals, Any], tuple[str, ...]]
CASES: dict[Reason, Case] = {
    Reason.TOKEN_EXPIRED: lambda r, s: r.invoking(r.forged(exp=int(time.time()) - 3600, iat=int(time.time()) - 7200)),
    Reason.TOKEN_SIGNATURE_INVALID: lambda r, s: r.invoking(by_stranger(r, s)),
    Reason.TOKEN_MALFORMED: lambda r, s: r.invoking("not.a.token"),
    Reason.TOOL_NOT_IN_TOKEN: lambda r, s: r.invoking(r.mint(tools=[ToolGrant(tool="core.clock_now")])),
    Reason.POLICY_ENGINE_ERROR: lambda r, s: r.invoking(r.mint(ERRING, trust_level=2)),
    Reason.PERMISSION_DENIED: lambda r, s: r.invoking(r.mint(DENIED)),
    Reason.DID_NOT_FOUND: lambda r, s: r.delegating("did:web:nowhere.example:agents:a", pb.Part()),
    Reason.TOKEN_AUDIENCE_INVALID: lambda r, s: r.invoking(r.forged(aud="another-mesh")),
    Reason.SCOPE_MISSING: lambda r, s: r.invoking(r.mint(scopes=["tools:read"])),
    Reason.APPROVAL_REQUIRED: lambda r, s: r.invoking(r.mint(ASKING)),
    Reason.TOKEN_REVOKED: lambda r, s: r.invoking(r.revoked()),
    Reason.AUTHORITY_EXCEEDED: lambda r, s: r.delegating(
        "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK", pb.Part(scopes=["authz:admin"])
    ),
    Reason.TOKEN_PROOF_INVALID: lambda r, s: r.invoking(
        r.mint(confirmation=Confirmation(jwk_thumbprint=Holder().thumbprint))
    ),
    Reason.POLICY_INVALID: lambda r, s: r.putting_nonsense(),
    Reason.BUDGET_EXHAUSTED: lambda r, s: r.invoking(r.spent()),
}


# Those about a ticket need an approver: test_approvals.py and test_console.py meet them, and the tests of
# services/approval those that need time to pass.
OF_TICKETS = {
    *(Reason.APPROVAL_REJECTED, Reason.SELF_APPROVAL, Reason.APPROVER_NOT_ELIGIBLE),
    *(
        Reason.TICKET_REDEEMED,
        Reason.TICKET_ARGUMENTS_CHANGED,
        Reason.TICKET_POLICY_CHANGED,
        Reason.TICKET_TOOL_CHANGED,
    ),
    *(Reason.TICKET_TOKEN_REVOKED, Reason.TICKET_EXPIRED, Reason.TICKET_CALLER_MISMATCH, Reason.TICKET_CLOSED),
    *(Reason.TICKET_APPROVER_REVOKED, Reason.TICKET_LINK_USED, Reason.TICKET_LINK_EXPIRED),
}


@pytest.mark.parametrize("reason", CASES, ids=lambda reason: f"E{reason.value}")
def test_it_is_refused_with_its_code(refusals: Refusals, signer: Any, reason: Reason) -> None:
    codes = CASES[reason](refusals, signer)
    assert set(codes) == {ROWS[reason].code}


def test_no_code_of_authority_is_left_out() -> None:
    authority = {reason for reason in Reason if 3200 < reason.value < 3300}
    assert authority - CASES.keys() == OF_TICKETS
