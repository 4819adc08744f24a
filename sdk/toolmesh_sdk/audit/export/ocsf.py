"""Converts records to OCSF events (API Activity, class 6003) for SIEMs.

The mapping depends only on the record and its location, so that a verifier can recompute an exported file.
docs/audit.md has it as a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from toolmesh_sdk.audit.format.canonical import quick_canonical
from toolmesh_sdk.audit.format.events import RecordLocation, event_type

OCSF_VERSION = "1.3.0"
CLASS_UID, CATEGORY_UID = 6003, 6
UNKNOWN, OTHER = 0, 99
READ, UPDATE = 2, 3
# The mutation class of a call gives the activity; records without one are `Other`.
_ACTIVITIES = {"read_only": READ, "write_reversible": UPDATE, "write_irreversible": UPDATE}
_ACTIVITY_NAMES = {UNKNOWN: "Unknown", READ: "Read", UPDATE: "Update", OTHER: "Other"}
_STATUS = {"success": (1, "Success"), "error": (2, "Failure"), "timeout": (2, "Failure")}
_DECISIONS = {"allow": "Allowed", "deny": "Denied", "requires_approval": "Requires approval"}
_INFORMATIONAL, _LOW, _MEDIUM = (1, "Informational"), (2, "Low"), (3, "Medium")
# Fields with an OCSF attribute; all others are under `unmapped`.
_MAPPED = frozenset(
    {
        *("record_id", "event_class", "event_time", "trace_id", "invocation_id", "tool_version", "operation", "status"),
        *("error_reason", "latency_us", "writer", "authorization", "determining_policies", "policy_set_version"),
        *("mutation_class", "caller"),
    }
)
_MAPPED_CALLER = frozenset({"subject", "tenant", "session_id", "agent", "peer"})


def ocsf_line(location: RecordLocation, leaf: bytes, form: Mapping[str, Any]) -> bytes:
    """Return a record as one line, without a line end."""
    return quick_canonical(ocsf_event(location, leaf, form))


def ocsf_event(location: RecordLocation, leaf: bytes, form: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record as an API Activity event."""
    activity = _ACTIVITIES.get(str(form.get("mutation_class", "")), OTHER)
    status_id, status = _STATUS.get(str(form.get("status", "")), (UNKNOWN, "Unknown"))
    severity_id, severity = _severity(form)
    event: dict[str, Any] = {
        "activity_id": activity,
        "activity_name": _ACTIVITY_NAMES[activity],
        "category_uid": CATEGORY_UID,
        "category_name": "Application Activity",
        "class_uid": CLASS_UID,
        "class_name": "API Activity",
        "type_uid": CLASS_UID * 100 + activity,
        "type_name": f"API Activity: {_ACTIVITY_NAMES[activity]}",
        "time": _milliseconds(form),
        "severity_id": severity_id,
        "severity": severity,
        "status_id": status_id,
        "status": status,
        "metadata": _metadata(location, form),
        "actor": _actor(form),
        "api": _api(form),
        "src_endpoint": {"svc_name": str(_caller(form).get("peer") or form.get("writer", ""))},
        "resources": _resources(form),
        "unmapped": _unmapped(location, leaf, form),
    }
    if "error_reason" in form:
        code, _, name = str(form["error_reason"]).partition(" ")
        event |= {"status_code": code, "status_detail": name or code}
    if "latency_us" in form:
        event["duration"] = int(form["latency_us"]) // 1000
    return event


def _severity(form: Mapping[str, Any]) -> tuple[int, str]:
    if form.get("authorization") == "deny":
        return _MEDIUM
    return _LOW if form.get("status") in ("error", "timeout") else _INFORMATIONAL


def _metadata(location: RecordLocation, form: Mapping[str, Any]) -> dict[str, Any]:
    known: dict[str, Any] = {
        "version": OCSF_VERSION,
        "product": {"name": "Toolmesh", "vendor_name": "Toolmesh", "feature": {"name": "audit"}},
        "uid": str(form.get("record_id", "")),
        "event_code": event_type(str(form.get("event_class", ""))),
        "log_name": location.log,
        "sequence": location.sequence,
        "original_time": str(form.get("event_time", "")),
        "correlation_uid": form.get("trace_id"),
        "tenant_uid": _caller(form).get("tenant"),
    }
    return _present(known)


def _actor(form: Mapping[str, Any]) -> dict[str, Any]:
    caller = _caller(form)
    known: dict[str, Any] = {"app_name": str(caller.get("agent") or form.get("writer", ""))}
    if "subject" in caller:
        known["user"] = {"uid": caller["subject"]}
    if "session_id" in caller:
        known["session"] = {"uid": caller["session_id"]}
    if "authorization" in form:
        decision = str(form["authorization"])
        version = form.get("policy_set_version")
        policies = form.get("determining_policies") or [""]
        known["authorizations"] = [
            _present(
                {
                    "decision": _DECISIONS.get(decision, decision),
                    "policy": _present({"uid": policy or None, "version": version}) or None,
                }
            )
            for policy in policies
        ]
    return _present(known)


def _api(form: Mapping[str, Any]) -> dict[str, Any]:
    tool, _, version = str(form.get("tool_version", "")).partition("/versions/")
    known: dict[str, Any] = {
        "operation": str(form.get("operation") or tool.removeprefix("tools/") or form.get("event_class", "")),
        "version": version or None,
        "service": {"name": str(form.get("writer", ""))},
    }
    if "invocation_id" in form:
        known["request"] = {"uid": form["invocation_id"]}
    if "error_reason" in form:
        known["response"] = {"error": form["error_reason"]}
    return _present(known)


def _resources(form: Mapping[str, Any]) -> list[dict[str, Any]]:
    if "tool_version" not in form:
        return []
    tool, _, version = str(form["tool_version"]).partition("/versions/")
    known = {
        "uid": form["tool_version"],
        "name": tool.removeprefix("tools/"),
        "type": "tool",
        "version": version or None,
    }
    return [_present(known)]


def _unmapped(location: RecordLocation, leaf: bytes, form: Mapping[str, Any]) -> dict[str, Any]:
    rest: dict[str, Any] = {name: value for name, value in form.items() if name not in _MAPPED}
    caller = {name: value for name, value in _caller(form).items() if name not in _MAPPED_CALLER}
    if caller:
        rest["caller"] = caller
    return {**rest, "shard": location.shard, "leaf_hash": leaf.hex()}


def _caller(form: Mapping[str, Any]) -> Mapping[str, Any]:
    caller = form.get("caller")
    return caller if isinstance(caller, dict) else {}


def _milliseconds(form: Mapping[str, Any]) -> int:
    time = datetime.fromisoformat(str(form["event_time"]))
    since = time.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000


def _present(known: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in known.items() if value is not None}
