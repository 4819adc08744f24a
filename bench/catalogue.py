"""Ten thousand tools that differ in name, words and schema, made by combination: the same ones in every run."""

from __future__ import annotations

import json

from toolmesh.registry.v1 import tool_manifest_pb2 as pb

VERBS = ("Find", "List", "Count", "Describe", "Compare", "Export", "Summarise", "Check", "Rank", "Trace")
NOUNS = (
    "invoice", "refund", "customer", "shipment", "supplier", "ticket", "message", "calendar", "meeting", "document",
    "contract", "payment", "order", "warehouse", "vehicle", "route", "sensor", "alert", "deployment", "repository",
    "dataset", "report", "campaign", "subscription", "employee", "candidate", "patient", "recipe", "flight", "hotel",
)  # fmt: skip
PLACES = (
    "in the archive", "of this week", "by region", "with open questions", "near a place", "for one team", "over a budget",
    "that changed last", "with attachments", "marked as urgent",
)  # fmt: skip


def manifest(number: int) -> pb.ToolManifest:
    """Return the tool of this number."""
    verb, noun, place = VERBS[number % 10], NOUNS[number // 10 % 30], PLACES[number // 300 % 10]
    title = f"{verb} {noun}s {place}"
    schema = {
        "type": "object",
        "properties": {
            f"{noun}_id": {"type": "string", "maxLength": 64, "description": f"Which {noun}"},
            "since": {"type": "string", "format": "date-time", "description": "Only what is newer"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 20},
        },
        "required": [f"{noun}_id"],
        "additionalProperties": False,
    }
    answer = {"type": "object", "properties": {f"{noun}s": {"type": "array", "items": {"type": "string"}}}}
    return pb.ToolManifest(
        schema_version="0.2.0",
        tool_id=f"tool_{number:05d}",
        namespace="bench",
        version="1.0.0",
        title=title,
        description=f"{title}, from system {number // 3000}. Answers with what matches, the newest first.",
        search_hint=f"{verb.lower()} {noun} {place}",
        provider="bench",
        kind=pb.TOOL_KIND_FUNCTION,
        protocol=pb.TOOL_PROTOCOL_NATIVE,
        tags=[noun, verb.lower()],
        input=pb.InputContract(schema=json.dumps(schema).encode()),
        output=pb.OutputContract(schema=json.dumps(answer).encode()),
        execution=pb.ExecutionProfile(runner=pb.RUNNER_KIND_REMOTE, timeout_class=pb.TIMEOUT_CLASS_STANDARD),
        permission=pb.PermissionProfile(required_scopes=[f"{noun}:read"]),
        mutation_class=pb.MUTATION_CLASS_READ_ONLY,
        observability=pb.Observability(audit_detail=pb.AUDIT_DETAIL_DIGEST),
    )
