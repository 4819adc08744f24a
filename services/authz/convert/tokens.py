"""Converts the messages of TokenService and the claims of tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import orjson
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.authz.v1 import authz_service_pb2 as authz_pb
from toolmesh.authz.v1 import capability_token_pb2 as pb
from toolmesh.authz.v1 import token_service_pb2 as token_pb
from toolmesh.common.v1 import caller_pb2

from libs.common.auth.identity import ArgumentConstraint, Budget, Grant
from services.authz.domain.model import Attenuation, TokenRequest

_TIERS = {
    "user": caller_pb2.CREDENTIAL_TIER_USER,
    "agent": caller_pb2.CREDENTIAL_TIER_AGENT,
    "invocation": caller_pb2.CREDENTIAL_TIER_INVOCATION,
}


class HasLifetime(Protocol):
    """A request with an optional token lifetime."""

    @property
    def lifetime(self) -> Duration: ...
    def HasField(self, field_name: Any) -> bool: ...


def token_request(request: authz_pb.IssueTokenRequest) -> TokenRequest:
    """Parse the requested authority of a new token."""
    return TokenRequest(
        subject=request.subject,
        tools=grants(request.tools),
        scopes=tuple(request.scopes),
        lifetime=seconds(request),
        tenant=request.tenant,
        groups=tuple(request.groups),
        trust_level=request.trust_level,
        audiences=tuple(request.audiences),
        resources=tuple(request.resource_constraints),
        argument_constraints=constraints(request.argument_constraints),
        budget=budget(request.budget),
        depth=request.delegation_depth if request.HasField("delegation_depth") else None,
        confirmation=confirmation(request.confirmation),
        session_id=request.session_id,
    )


def attenuation(message: token_pb.Part) -> Attenuation:
    """Parse the requested authority of a derived token."""
    return Attenuation(
        tools=grants(message.tools),
        scopes=tuple(message.scopes),
        resources=tuple(message.resource_constraints),
        argument_constraints=constraints(message.argument_constraints),
        budget=budget(message.budget),
        lifetime=seconds(message),
        audiences=tuple(message.audiences),
        groups=tuple(message.groups),
        trust_level=message.trust_level if message.HasField("trust_level") else None,
        session_id=message.session_id,
        confirmation=confirmation(message.confirmation),
    )


def seconds(request: HasLifetime) -> float | None:
    """Parse a lifetime in seconds; None if it is unset."""
    return request.lifetime.seconds + request.lifetime.nanos / 1e9 if request.HasField("lifetime") else None


def grants(tools: Iterable[pb.ToolGrant]) -> tuple[Grant, ...]:
    """Parse tool grants."""
    return tuple(Grant(grant.tool, grant.version_constraint) for grant in tools)


def constraints(messages: Iterable[pb.ArgumentConstraint]) -> tuple[ArgumentConstraint, ...]:
    """Parse argument constraints, with their schemas as received."""
    return tuple(ArgumentConstraint(message.tool, message.schema) for message in messages)


def budget(message: pb.Budget) -> Budget:
    """Parse a budget. Running time is rounded down to milliseconds."""
    running = message.running_time
    return Budget(
        calls=message.calls if message.HasField("calls") else None,
        cost_micros=message.cost_micros if message.HasField("cost_micros") else None,
        running_ms=running.seconds * 1000 + running.nanos // 1_000_000 if message.HasField("running_time") else None,
    )


def confirmation(message: pb.Confirmation) -> str:
    """Parse the key or certificate that a holder must prove; empty if none."""
    proof = message.WhichOneof("proof")
    if proof is None:
        return ""
    return (
        f"jkt:{message.jwk_thumbprint}" if proof == "jwk_thumbprint" else f"x5t#S256:{message.certificate_thumbprint}"
    )


def claims_message(claims: Mapping[str, Any]) -> pb.CapabilityTokenClaims:
    """Build the message of claims from the object that was signed, so that the two cannot differ.

    Claims that older tokens do not have stay unset.
    """
    audience = claims["aud"]
    message = pb.CapabilityTokenClaims(
        issuer=claims.get("iss", ""),
        subject=claims["sub"],
        audiences=[audience] if isinstance(audience, str) else audience,
        token_id=claims["jti"],
        issue_time=Timestamp(seconds=int(claims["iat"])),
        expire_time=Timestamp(seconds=int(claims["exp"])),
        tier=_TIERS.get(claims.get("tier", "user"), caller_pb2.CREDENTIAL_TIER_UNSPECIFIED),
        tools=[pb.ToolGrant(tool=t["tool"], version_constraint=t.get("version", "")) for t in claims.get("tools", [])],
        scopes=claims.get("scope", "").split(),
        tenant=claims.get("tenant", ""),
        groups=claims.get("groups", []),
        trust_level=claims.get("trust", 0),
        actor_chain=[caller_pb2.Actor(subject=a["sub"], token_id=a["jti"]) for a in claims.get("act", [])],
        agent=claims.get("agent", ""),
        session_id=claims.get("session", ""),
    )
    if "nbf" in claims:
        message.not_before.seconds = int(claims["nbf"])
    _set_bounds(message, claims)
    return message


def _set_bounds(message: pb.CapabilityTokenClaims, claims: Mapping[str, Any]) -> None:
    message.resource_constraints.extend(claims.get("res", []))
    message.delegation_depth = claims.get("depth", 0)
    message.confirmation = "".join(f"{proof}:{thumbprint}" for proof, thumbprint in claims.get("cnf", {}).items())
    for constraint in claims.get("args", []):
        message.argument_constraints.add(tool=constraint["tool"], schema=orjson.dumps(constraint["schema"]))
    limits = claims.get("budget", {})
    if limits:
        message.budget.CopyFrom(pb.Budget(calls=limits.get("calls"), cost_micros=limits.get("cost_micros")))
    if "running_ms" in limits:
        message.budget.running_time.FromMilliseconds(limits["running_ms"])
    for ancestor in claims.get("line", []):
        message.lineage.add(claims=claims_message(ancestor), key_id=ancestor["kid"])
