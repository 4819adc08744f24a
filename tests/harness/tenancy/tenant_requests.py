"""How one tenant would ask for what another one has: a request for each RPC whose policy row admits tenants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message
from toolmesh.approval.v1 import ticket_pb2
from toolmesh.audit.v1 import usage_service_pb2 as usage_pb
from toolmesh.authz.v1 import authz_service_pb2 as authz_pb
from toolmesh.authz.v1 import token_service_pb2 as token_pb
from toolmesh.authz.v1.capability_token_pb2 import ToolGrant
from toolmesh.executor.v1 import executor_service_pb2 as executor_pb
from toolmesh.executor.v1 import idempotency_key_pb2 as kpb
from toolmesh.executor.v1 import invocation_service_pb2 as jobs_pb

from libs.common.errors import Reason
from services.registry.tests.manifests import reader
from tests.harness.tenancy.tenants import Owner

AGENT = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"
ECHO = "tools/core.echo"
Fields = dict[str, Any]
Entry = Callable[[Owner], Fields]


def of_version(owner: Owner) -> Fields:
    return {"name": owner.version, "reason": "because"}


def of_tool(owner: Owner) -> Fields:
    return {"name": owner.tool, "reason": "because"}


def an_invocation(owner: Owner) -> executor_pb.InvokeRequest:
    """The owner's call once more: another tenant may choose the same key, session and task, and meets nothing."""
    return executor_pb.InvokeRequest(tool="echo", **owner.call)


def fields_of(message: Message) -> Fields:
    return {field.name: value for field, value in message.ListFields()}


# RPCs that name what belongs to a tenant: the request for what the owner has, which others are refused.
NAMED: dict[str, Entry] = {
    "RegistryService.RegisterTool": lambda owner: {"manifest": reader(f"{owner.tag}.find", "1.1.0", aliases=["look"])},
    "LifecycleService.PublishVersion": of_version,
    "LifecycleService.DeprecateVersion": of_version,
    "LifecycleService.UndeprecateVersion": of_version,
    "LifecycleService.SunsetVersion": of_version,
    "LifecycleService.RemoveVersion": of_version,
    "LifecycleService.DisableTool": of_tool,
    "LifecycleService.EnableTool": of_tool,
    "LifecycleService.QuarantineTool": of_tool,
    "LifecycleService.MarkRequiresSetup": of_version,
    "LifecycleService.CompleteSetup": of_version,
    "LifecycleService.DeferVersion": of_version,
    "LifecycleService.LoadVersion": of_version,
    "NamespaceService.AddDelegate": lambda owner: {"name": f"namespaces/{owner.tag}", "subject": AGENT},
    "NamespaceService.RemoveDelegate": lambda owner: {"name": f"namespaces/{owner.tag}", "subject": AGENT},
    "NamespaceService.MoveAlias": lambda owner: {
        "alias": owner.alias, "from_tool": owner.tool, "to_tool": owner.other_tool, "reason": "because",
    },
    "AuthzService.Check": lambda owner: {
        "call": owner.call_facts(),
        "subject": authz_pb.SubjectFacts(
            subject=owner.subject, kind=authz_pb.PRINCIPAL_KIND_USER, tenant=owner.tag
        ),
    },
    "PolicyService.ExplainDecision": lambda owner: {"name": owner.decision},
    "TokenService.RevokeToken": lambda owner: {"token_id": owner.spare_id},
    "ExecutorService.FetchResult": lambda owner: {
        "ref": owner.stored.ref, "access_token": owner.stored.access_token, "max_bytes": 100,
    },
    "InvocationService.GetInvocation": lambda owner: {"name": owner.job},
    "InvocationService.WaitInvocation": lambda owner: {"name": owner.job},
    "InvocationService.CancelInvocation": lambda owner: {"name": owner.job},
    "InvocationService.WatchInvocation": lambda owner: {"name": owner.job},
    "InvocationService.StreamInvocation": lambda owner: {"attach": jobs_pb.AttachInvocation(name=owner.job)},
    "InvocationService.ResumeInvocation": lambda owner: {
        "name": owner.job, "input": jobs_pb.InvocationInput(input_id="q", content=b"1"),
    },
    "InvocationService.ListCheckpoints": lambda owner: {"parent": owner.job},
    "InvocationService.DeleteCheckpoint": lambda owner: {"name": f"{owner.job}/checkpoints/1"},
    "InvocationService.RedeliverCallback": lambda owner: {"name": f"{owner.job}/callbackDelivery"},
    "KeyService.GetKey": lambda owner: {"name": owner.key},
    "KeyService.SettleKey": lambda owner: {"name": owner.key, "absent": {}, "reason": "because"},
    "ApprovalService.GetTicket": lambda owner: {"name": owner.ticket},
    "ApprovalService.ApproveTicket": lambda owner: {"name": owner.ticket, "reason": "because"},
    "ApprovalService.DenyTicket": lambda owner: {"name": owner.ticket, "reason": "because"},
    "ApprovalService.CancelTicket": lambda owner: {"name": owner.ticket},
    "ApprovalService.OverrideTicket": lambda owner: {"name": owner.ticket, "reason": "because"},
    "ApprovalService.ReviewOverride": lambda owner: {
        "name": owner.ticket, "verdict": ticket_pb2.REVIEW_STATE_UPHELD, "finding": "because",
    },
    "ApprovalService.OpenTicketLink": lambda owner: {"name": owner.ticket, "token": "0" * 64},
    "AuditService.GetRecord": lambda owner: {"name": owner.record},
    "LogService.GetInclusionProof": lambda owner: {"sequence": int(owner.record.rpartition("/")[2])},
}  # fmt: skip
# RPCs that answer every caller about its own: the request of the owner, which shows others nothing of it.
ABOUT_CALLER: dict[str, Entry] = {
    "AuthzService.BatchCheck": lambda owner: {"calls": [owner.call_facts()]},
    "AuthzService.FilterTools": lambda owner: {"tools": [owner.call_facts()]},
    "TokenService.DelegateToken": lambda owner: {
        "agent": AGENT, "part": token_pb.Part(scopes=["tools:call"]),
    },
    "TokenService.NarrowToken": lambda owner: {"part": token_pb.Part(tools=[ToolGrant(tool="core.echo")])},
    "TokenService.IssueAssertion": lambda owner: {"audience": "https://login.example.com/token"},
    "TokenService.ListRevocations": lambda owner: {},
    "ExecutorService.Invoke": lambda owner: fields_of(an_invocation(owner)),
    "ExecutorService.InvokeGroup": lambda owner: {"calls": [executor_pb.GroupCall(request=an_invocation(owner))]},
    "ExecutorService.WatchResources": lambda owner: {"upstream": "none", "uris": ["file:///a"]},
    "ExecutorService.PreviewInvocation": lambda owner: {"request": an_invocation(owner)},
    "InvocationService.StartInvocation": lambda owner: {
        "request": executor_pb.InvokeRequest(tool="echo", arguments=owner.call["arguments"])
    },
    "InvocationService.ListInvocations": lambda owner: {},
    "InvocationService.ListCallbackDeliveries": lambda owner: {},
    "KeyService.ListKeys": lambda owner: {"states": [kpb.KEY_STATE_SUCCEEDED]},
    "ToolLogService.ListToolLogs": lambda owner: {"tool": ECHO},
    "ApprovalService.ListTickets": lambda owner: {},
    "ApprovalService.WatchTickets": lambda owner: {},
    "AuditService.QueryRecords": lambda owner: {},
    "AuditService.WatchRecords": lambda owner: {},
    "UsageService.GetUsage": lambda owner: {"filter": usage_pb.UsageFilter(tenant=owner.tag)},
    "UsageService.GetToolUsage": lambda owner: {"name": ECHO},
    "UsageService.BatchGetToolUsage": lambda owner: {"requests": [usage_pb.GetToolUsageRequest(name=ECHO)]},
    "UsageService.ListTopUsage": lambda owner: {"group": usage_pb.USAGE_GROUP_CALLER},
}  # fmt: skip
OWN = NAMED | ABOUT_CALLER
# RPCs that answer all tenants alike.
SHARED: dict[str, Entry] = {
    "RegistryService.GetTool": lambda owner: {"name": owner.other_tool},
    "RegistryService.ListTools": lambda owner: {"namespace": owner.tag},
    "RegistryService.WatchTools": lambda owner: {},
    "RegistryService.ResolveTool": lambda owner: {"tool": owner.other_tool},
    "RegistryService.ListToolVersions": lambda owner: {"tool": owner.other_tool},
    "RegistryService.CheckCompatibility": lambda owner: {"version": f"{owner.other_tool}/versions/1.0.0"},
    "RegistryService.NegotiateSchema": lambda owner: {"tool": ECHO, "input_schema": b"{}", "output_schema": b"{}"},
    "LifecycleService.ListTransitions": lambda owner: {"name": owner.other_tool},
    "NamespaceService.GetNamespace": lambda owner: {"name": f"namespaces/{owner.tag}"},
    "NamespaceService.ListNamespaces": lambda owner: {},
    "TrustService.GetTrustScore": lambda owner: {"name": ECHO},
    "TrustService.RateTool": lambda owner: {"version": f"{ECHO}/versions/1.0.0", "stars": 5},
    "TrustService.GetStage": lambda owner: {"name": ECHO},
    "DiscoveryService.SearchTools": lambda owner: {"query": "echo a text"},
    "DiscoveryService.CompileSurface": lambda owner: {"task": "echo a text", "token_budget": 2000},
    "DiscoveryService.GetToolSchemas": lambda owner: {"tools": [ECHO]},
    "AuditService.GetCheckpoint": lambda owner: {},
}
# RPCs without a caller's token that clients may call: how another tenant would use them, and the expected refusal.
OPEN: dict[str, tuple[Entry, Reason | None]] = {
    "AuthzService.GetJwks": (lambda owner: {}, None),
    "TokenService.ExchangeToken": (lambda owner: {"subject_token": owner.token}, Reason.TOKEN_AUDIENCE_INVALID),
}
