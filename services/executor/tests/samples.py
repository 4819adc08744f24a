"""Tools, callers and manifests that tests start from."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from toolmesh.registry.v1 import tool_manifest_pb2 as pb

from libs.common.auth.authority import Grant
from libs.common.errors import Reason
from libs.common.ids import new_id
from libs.common.json.jsonio import dump
from services.executor.adapters.registry.json_schema import defaults_of, input_contract, output_contract
from services.executor.domain.model import Caller, Decision, Event, Record, Request, Result, Source, Status, Verdict
from services.executor.domain.run import RunRequest
from services.executor.domain.states import State
from services.executor.domain.tool import Mutation, Placement, TimeoutClass, Tool

INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "maxLength": 20},
        "count": {"type": "integer", "minimum": 0, "default": 1},
        "secret": {"type": "string", "x-sensitivity": "high"},
    },
    "required": ["text"],
}
OUTPUT: dict[str, Any] = {"type": "object", "properties": {"said": {"type": "string"}}, "required": ["said"]}


def some_work(**arguments: Any) -> RunRequest:
    """A run with these arguments and a second to take."""
    return RunRequest(new_id(), arguments, 1.0, tenant="acme", subject="did:key:ada")


def a_tool(**changes: Any) -> Tool:
    """A read-only tool with a default, a secret argument and a strict result."""
    schema = dump(changes.pop("input_schema", INPUT))
    fields: dict[str, Any] = {
        "name": "tools/core.say/versions/1.0.0",
        "qualified": "core.say",
        "version": "1.0.0",
        "digest": "sha256:" + "d" * 64,
        "mutation": Mutation.READ_ONLY,
        "timeout_class": TimeoutClass.STANDARD,
        "own_limit": 5.0,
        "window": 3600.0,
        "runner": "builtin",
        "entry_point": "say",
        "input": input_contract(schema, ()),
        "output": output_contract(dump(OUTPUT), ()),
        "max_result_bytes": 10_000,
        "defaults": defaults_of(schema),
        "key_required": False,
        "repeatable": True,
        "summarized": True,
        "required_scopes": ("tools:call",),
        "placement": Placement(concurrency_safe=True),
        **changes,
    }
    return Tool(**fields)


def a_write_tool(**changes: Any) -> Tool:
    """A tool whose effect must not happen twice."""
    fields = {
        "mutation": Mutation.WRITE_REVERSIBLE,
        "key_required": True,
        "repeatable": False,
        "side_effects": ("create orders/*",),
        **changes,
    }
    return a_tool(**fields)


def a_caller(**changes: Any) -> Caller:
    """Alice, through the gateway."""
    fields: dict[str, Any] = {
        "subject": "did:web:toolmesh.local:users:alice",
        "token_id": "token-1",
        "expires_at": 4_000_000_000.0,
        "authority_ends": 4_000_000_000.0,
        "scopes": ("tools:call",),
        "session_id": "session-1",
        "peer": "gateway",
        "grants": (Grant("*"),),
        **changes,
    }
    return Caller(**fields)


def a_request(**changes: Any) -> Request:
    """A call that a tool of `a_tool` accepts, with time enough."""
    fields: dict[str, Any] = {
        "tool": "say",
        "caller": a_caller(),
        "arguments": b'{"text":"hello"}',
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
        "deadline": time.monotonic() + 30,
        **changes,
    }
    return Request(**fields)


def a_decision(verdict: Verdict = Verdict.ALLOW, **changes: Any) -> Decision:
    """What policy answers."""
    fields: dict[str, Any] = {
        "name": f"decisions/{new_id()}",
        "verdict": verdict,
        "deny_reason": Reason.SCOPE_MISSING,
        "policies": ("policy0",),
        "policy_set_version": "set-1",
        **changes,
    }
    return Decision(**fields)


def a_record(**changes: Any) -> Record:
    """The record of a decision."""
    fields: dict[str, Any] = {
        "record_id": new_id(),
        "event": Event.PERMISSION_DECIDED,
        "time": datetime(2026, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC),
        "invocation_id": new_id(),
        "request": a_request(),
        "tool": a_tool(),
        "previous_state": State.ARGUMENTS_READY,
        "state": State.APPROVED,
        "status": Status.BEGUN,
        **changes,
    }
    return Record(**fields)


def a_result(**changes: Any) -> Result:
    """What a call ended in."""
    fields: dict[str, Any] = {
        "result_id": new_id(),
        "invocation_id": new_id(),
        "content": b'{"said":"hello"}',
        "tool_version": "tools/core.say/versions/1.0.0",
        "tool_digest": "sha256:" + "d" * 64,
        "source": Source.COMPUTED,
        "created": datetime(2026, 1, 1, tzinfo=UTC),
        "total": 0.25,
        "phases": (("request", 0.125), ("validate", 0.125)),
        "attempts": 1,
        "sandbox": "in_process",
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
        **changes,
    }
    return Result(**fields)


def a_manifest(**changes: Any) -> pb.ToolManifest:
    """A manifest of a read-only tool, as a producer would write it."""
    manifest = pb.ToolManifest(
        schema_version="0.2.0",
        tool_id="say",
        namespace="core",
        version="1.0.0",
        title="Say",
        description="Says something to somebody.",
        provider="acme",
        kind=pb.TOOL_KIND_FUNCTION,
        protocol=pb.TOOL_PROTOCOL_NATIVE,
        input=pb.InputContract(schema=dump(INPUT), mutation_policy=pb.INPUT_MUTATION_POLICY_DEFAULTS),
        output=pb.OutputContract(schema=dump(OUTPUT)),
        execution=pb.ExecutionProfile(
            runner=pb.RUNNER_KIND_BUILTIN, entry_point="say", timeout_class=pb.TIMEOUT_CLASS_STANDARD
        ),
        permission=pb.PermissionProfile(required_scopes=["tools:call"]),
        mutation_class=pb.MUTATION_CLASS_READ_ONLY,
        observability=pb.Observability(audit_detail=pb.AUDIT_DETAIL_DIGEST),
    )
    manifest.MergeFrom(pb.ToolManifest(**changes))
    return manifest
