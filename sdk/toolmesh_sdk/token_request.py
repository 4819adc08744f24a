"""Builds the token requests of `mint`, `exchange`, `delegate` and `narrow`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from google.protobuf.duration_pb2 import Duration
from toolmesh.authz.v1 import capability_token_pb2 as pb
from toolmesh.authz.v1 import token_service_pb2

from toolmesh_sdk._wire.payload import encode_arguments


class Bounds(TypedDict, total=False):
    """The bounds of a token. Omitted bounds are inherited, except scopes, which must be listed.

    A tool is a pattern such as `arith*`, with a version constraint as `echo@^1.2`. `arguments` maps tool patterns to
    JSON Schemas of their arguments. `proof` is the key that the holder must prove: `jkt:{thumbprint}` or
    `x5t#S256:{thumbprint}`.
    """

    tools: Iterable[str]
    scopes: Iterable[str]
    resources: Iterable[str]
    arguments: Mapping[str, Mapping[str, Any]]
    calls: int
    cost_micros: int
    running_seconds: float
    ttl_seconds: float
    audience: Iterable[str]
    groups: Iterable[str]
    trust: int
    session: str
    proof: str


def token_part(bounds: Bounds) -> token_service_pb2.Part:
    """Return the bounds as a message. Raises ValueError for an unknown kind of proof."""
    return token_service_pb2.Part(
        tools=tool_grants(bounds.get("tools", ())),
        scopes=list(bounds.get("scopes", ())),
        resource_constraints=list(bounds.get("resources", ())),
        argument_constraints=argument_constraint_messages(bounds.get("arguments", {})),
        budget=budget_message(bounds),
        lifetime=duration_message(bounds.get("ttl_seconds")),
        audiences=list(bounds.get("audience", ())),
        groups=list(bounds.get("groups", ())),
        trust_level=bounds.get("trust"),
        session_id=bounds.get("session", ""),
        confirmation=confirmation_message(bounds.get("proof", "")),
    )


def exchange_request(
    subject_token: str, scopes: Iterable[str], ttl_seconds: float | None, proof: str
) -> token_service_pb2.ExchangeTokenRequest:
    """Return the request for a token in exchange for another issuer's. Raises ValueError for an unknown kind of
    proof."""
    return token_service_pb2.ExchangeTokenRequest(
        subject_token=subject_token,
        scopes=list(scopes),
        lifetime=duration_message(ttl_seconds),
        confirmation=confirmation_message(proof),
    )


def tool_grants(tools: Iterable[str]) -> list[pb.ToolGrant]:
    """Return the grants of tools such as `echo` or `echo@^1.2`."""
    split = (tool.partition("@") for tool in tools)
    return [pb.ToolGrant(tool=tool, version_constraint=version) for tool, _, version in split]


def argument_constraint_messages(arguments: Mapping[str, Mapping[str, Any]]) -> list[pb.ArgumentConstraint]:
    """Return the argument constraints of tool patterns."""
    return [pb.ArgumentConstraint(tool=tool, schema=encode_arguments(schema)) for tool, schema in arguments.items()]


def budget_message(bounds: Bounds) -> pb.Budget | None:
    """Return the budget; None if it is unbounded."""
    if not bounds.keys() & {"calls", "cost_micros", "running_seconds"}:
        return None
    return pb.Budget(
        calls=bounds.get("calls"),
        cost_micros=bounds.get("cost_micros"),
        running_time=duration_message(bounds.get("running_seconds")),
    )


def duration_message(seconds: float | None) -> Duration | None:
    """Return a duration message; None for None."""
    if seconds is None:
        return None
    duration = Duration()
    duration.FromMilliseconds(round(seconds * 1000))
    return duration


def confirmation_message(proof: str) -> pb.Confirmation | None:
    """Return the proof-of-possession key; None for a bearer token."""
    if not proof:
        return None
    kind, _, thumbprint = proof.partition(":")
    if kind == "jkt":
        return pb.Confirmation(jwk_thumbprint=thumbprint)
    if kind == "x5t#S256":
        return pb.Confirmation(certificate_thumbprint=thumbprint)
    raise ValueError("a proof is jkt:{thumbprint} or x5t#S256:{thumbprint}")
