"""Sets of many policies, as a company would write them: about teams' namespaces, tenants, tags and groups. None of them is about the
calls that are measured, and none is the same as another, so that asking all of them is what costs. One reads the tags of every tool, so that
no answer can be remembered for tools whose tags differ."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
from toolmesh.authz.v1 import policy_service_pb2 as pb
from toolmesh.authz.v1 import policy_service_pb2_grpc as rpc

from bench.stage import Stage

_KINDS = (
    ("needs_approval", "invoke_without_approval", 'resource.namespace == "team-{n}" && resource.impact_scope >= 7'),
    ("deny", "invoke", 'principal.tenant == "tenant-{n}" && resource.mutation_class == "write_irreversible"'),
    ("needs_approval", "invoke_without_approval", 'resource.tags.contains("tag-{n}") && principal.trust_level < 50'),
    ("deny", "invoke", 'principal.groups.contains("group-{n}") && context.environment == "prod"'),
)
_FOR_ALL = """@id("bench-recalled") @effect("deny") @reason("The tool was recalled.")
forbid (principal, action == Action::"invoke", resource) when { resource.tags.containsAny(["recalled", "withdrawn"]) };
"""
# Documents are bounded, so a large set is several of them.
_A_DOCUMENT = 250


def documents(count: int) -> Iterator[pb.PolicyDocument]:
    """Return documents with so many policies in all."""
    if count > 0:
        yield pb.PolicyDocument(name="bench-all.cedar", text=_FOR_ALL)
    for begin in range(1, count, _A_DOCUMENT):
        text = "\n".join(_policy(number) for number in range(begin, min(begin + _A_DOCUMENT, count)))
        yield pb.PolicyDocument(name=f"bench-{begin // _A_DOCUMENT}.cedar", text=text)


def _policy(number: int) -> str:
    effect, action, condition = _KINDS[number % len(_KINDS)]
    return (
        f'@id("bench-{number}") @effect("{effect}") @reason("Rule {number} of the benchmark.")\n'
        f'forbid (principal, action == Action::"{action}", resource) when {{ {condition.format(n=number)} }};'
    )


def activate(stage: Stage, count: int) -> None:
    """Ask so many policies from now on, the shipped ones among them."""
    with _channel(stage) as channel:
        stub = rpc.PolicyServiceStub(channel)
        shipped = stub.GetPolicySet(pb.GetPolicySetRequest(name="policySets/1"), timeout=60).policy_set
        added = list(documents(count - _policies_in(shipped)))
        put = pb.PutPolicyRequest(documents=added, base="policySets/1", comment=f"{count} policies")
        made = stub.PutPolicy(put, timeout=60).policy_set
        stub.ActivatePolicySet(pb.ActivatePolicySetRequest(name=made.name), timeout=60)


def _policies_in(shipped: pb.PolicySet) -> int:
    return sum(document.text.count('@id("') for document in shipped.documents)


def _channel(stage: Stage) -> grpc.Channel:
    pair = ((stage.pki / "operator.key").read_bytes(), (stage.pki / "operator.pem").read_bytes())
    credentials = grpc.ssl_channel_credentials((stage.pki / "ca.pem").read_bytes(), *pair)
    target = [("grpc.ssl_target_name_override", "authz")]
    return grpc.secure_channel(stage.parts["authz"][0], credentials, options=target)
