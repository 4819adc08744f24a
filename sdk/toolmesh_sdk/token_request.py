"""What a token is asked to carry, in the words of people: the bounds of `mint`, `delegate` and `narrow`, built in one place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from google.protobuf.duration_pb2 import Duration
from toolmesh.authz.v1 import capability_token_pb2 as pb
from toolmesh.authz.v1 import token_service_pb2

from toolmesh_sdk._wire.payload import encode_arguments


class Bounds(TypedDict, total=False):
    """What bounds a token; what is left out is passed on as it is, but for scopes, which are passed on only if named.

    A tool is a pattern such as `arith*`, with a version constraint as `echo@^1.2`. `arguments` maps patterns of tools to JSON Schemas
    that their arguments must satisfy. `proof` is what the holder must prove: `jkt:{thumbprint}` or `x5t#S256:{thumbprint}`.
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


def part_of(bounds: Bounds) -> token_service_pb2.Part:
    """Return the message. Raises ValueError for a proof of an unknown kind."""
    return token_service_pb2.Part(
        tools=grants_of(bounds.get("tools", ())),
        scopes=list(bounds.get("scopes", ())),
        resource_constraints=list(bounds.get("resources", ())),
        argument_constraints=constraints_of(bounds.get("arguments", {})),
        budget=budget_of(bounds),
        lifetime=duration_of(bounds.get("ttl_seconds")),
        audiences=list(bounds.get("audience", ())),
        groups=list(bounds.get("groups", ())),
        trust_level=bounds.get("trust"),
        session_id=bounds.get("session", ""),
        confirmation=confirmation_of(bounds.get("proof", "")),
    )


def grants_of(tools: Iterable[str]) -> list[pb.ToolGrant]:
    """Return grants of tools, written as `echo` or `echo@^1.2`."""
    split = (tool.partition("@") for tool in tools)
    return [pb.ToolGrant(tool=tool, version_constraint=version) for tool, _, version in split]


def constraints_of(arguments: Mapping[str, Mapping[str, Any]]) -> list[pb.ArgumentConstraint]:
    """Return constraints on arguments, by pattern of tools."""
    return [pb.ArgumentConstraint(tool=tool, schema=encode_arguments(schema)) for tool, schema in arguments.items()]


def budget_of(bounds: Bounds) -> pb.Budget | None:
    """Return the budget; None when nothing of it is bounded."""
    if not bounds.keys() & {"calls", "cost_micros", "running_seconds"}:
        return None
    return pb.Budget(
        calls=bounds.get("calls"),
        cost_micros=bounds.get("cost_micros"),
        running_time=duration_of(bounds.get("running_seconds")),
    )


def duration_of(seconds: float | None) -> Duration | None:
    """Return a duration; None when nothing was said."""
    if seconds is None:
        return None
    duration = Duration()
    duration.FromMilliseconds(round(seconds * 1000))
    return duration


def confirmation_of(proof: str) -> pb.Confirmation | None:
    """Return what a holder must prove; None for a bearer token."""
    if not proof:
        return None
    kind, _, thumbprint = proof.partition(":")
    if kind == "jkt":
        return pb.Confirmation(jwk_thumbprint=thumbprint)
    if kind == "x5t#S256":
        return pb.Confirmation(certificate_thumbprint=thumbprint)
    raise ValueError("a proof is jkt:{thumbprint} or x5t#S256:{thumbprint}")
