"""Converts results and errors of the executor to results of `tools/call`."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import quote

import orjson
from toolmesh.executor.v1.result_envelope_pb2 import (
    RESULT_SOURCE_STALE_CACHE,
    ContentPart,
    DeprecationNotice,
    PersistedResult,
    ResultEnvelope,
)

from libs.common.errors import MeshError
from services.gateway.domain.response import envelope
from services.gateway.mcp.protocol import (
    DEPRECATION_META_KEY,
    ERROR_META_KEY,
    INVOCATION_META_KEY,
    REPLAYED_META_KEY,
    STALE_META_KEY,
    TRACE_META_KEY,
    WARNINGS_META_KEY,
)

RESULT_URI = "toolmesh://results/"
_MAX_SHOWN_VIOLATIONS = 20


def call_result(result: ResultEnvelope, structured: bytes, *, stateless: bool) -> dict[str, Any]:
    """Return the result of a call. `structured` is its JSON, whether it was embedded or fetched."""
    embedded = result.structured_content
    text = result.model_facing_content or embedded.decode()
    content = [_text(text)] if text else []
    content += [_part(part, result.result_id, index) for index, part in enumerate(result.content)]
    for stored in result.persisted:
        content += [_text(stored.preview.decode(errors="replace")), resource_link(stored)]
    content += _remarks(result)
    shown: dict[str, Any] = {"content": content, "isError": False, "_meta": _meta(result)}
    if structured and (stateless or structured.lstrip()[:1] == b"{"):
        shown["structuredContent"] = orjson.Fragment(structured)
    return shown


def content_result(result: ResultEnvelope, structured: bytes) -> dict[str, Any]:
    """Return the result of a tool of an MCP server that declares no output schema: its content, as it is."""
    content = orjson.loads(structured)["content"] + _remarks(result)
    return {"content": content, "isError": False, "_meta": _meta(result)}


def method_result(result: ResultEnvelope, structured: bytes) -> dict[str, Any]:
    """Return the result of a method of an MCP server, as it is."""
    shown: dict[str, Any] = orjson.loads(structured)
    return {**shown, "_meta": _meta(result)}


def error_result(error: MeshError, trace_id: str) -> dict[str, Any]:
    """Return a failed call as a result, which the model reads: what happened, what to do, and the whole envelope."""
    lines = [error.message, error.row.resolution]
    if successor := error.metadata.get("successor", ""):
        lines.append(f"Successor: {successor}")
    lines += [f"{v.path or '/'}: {v.message}" for v in error.violations[:_MAX_SHOWN_VIOLATIONS]]
    return {
        "content": [_text("\n".join(filter(None, lines)))],
        "isError": True,
        "_meta": {ERROR_META_KEY: envelope(error, trace_id)},
    }


def json_result(value: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON object as the result of a tool of the gateway itself."""
    return {"content": [_text(orjson.dumps(value).decode())], "structuredContent": value, "isError": False}


def resource_link(stored: PersistedResult) -> dict[str, Any]:
    """Return the link by which a stored result is read. It holds the access token, as the envelope does."""
    return {
        "type": "resource_link",
        "uri": f"{RESULT_URI}{stored.ref.removeprefix('results/')}?token={quote(stored.access_token, safe='')}",
        "name": stored.ref,
        "mimeType": stored.media_type or "application/json",
        "size": stored.size_bytes,
    }


def _meta(result: ResultEnvelope) -> dict[str, Any]:
    meta: dict[str, Any] = {INVOCATION_META_KEY: result.invocation_id, TRACE_META_KEY: result.trace_id}
    if result.replayed:
        meta[REPLAYED_META_KEY] = True
    if result.provenance.source == RESULT_SOURCE_STALE_CACHE:
        meta[STALE_META_KEY] = result.provenance.retrieve_time.ToJsonString()
    if result.warnings:
        meta[WARNINGS_META_KEY] = [
            {"code": each.code, "message": each.message, "resource": each.resource} for each in result.warnings
        ]
    if result.HasField("deprecation"):
        meta[DEPRECATION_META_KEY] = _notice(result.deprecation)
    return meta


def _remarks(result: ResultEnvelope) -> list[dict[str, Any]]:
    """Return what the model reads beside the content of a result."""
    remarks = [_text(more) for more in result.additional_context]
    remarks += [_text(f"Warning: {warning.message}") for warning in result.warnings]
    if result.HasField("deprecation"):
        notice = _notice(result.deprecation)
        until = f" and ends at {notice['sunsetTime']}" if "sunsetTime" in notice else ""
        successor = f". Use {notice['successor']} instead" if "successor" in notice else ""
        remarks.append(_text(f"Warning: {result.provenance.tool_version} is deprecated{until}{successor}."))
    if result.provenance.source == RESULT_SOURCE_STALE_CACHE:
        read = result.provenance.retrieve_time.ToJsonString()
        remarks.append(_text(f"This result is from {read}: the service behind the tool does not answer now."))
    return remarks


def _notice(deprecation: DeprecationNotice) -> dict[str, str]:
    """Return the announced end of a version; what is not announced is left out."""
    sunset = deprecation.sunset_time.ToJsonString() if deprecation.HasField("sunset_time") else ""
    notice = {
        "sunsetTime": sunset,
        "successor": deprecation.successor,
        "migrationGuideUrl": deprecation.migration_guide_url,
    }
    return {name: text for name, text in notice.items() if text}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _part(part: ContentPart, result_id: str, index: int) -> dict[str, Any]:
    kind = part.WhichOneof("part")
    if kind == "blob":
        data, media_type = base64.b64encode(part.blob).decode(), part.media_type or "application/octet-stream"
        family = media_type.partition("/")[0]
        if family in ("image", "audio"):
            return {"type": family, "data": data, "mimeType": media_type}
        uri = f"{RESULT_URI}{result_id}/content/{index}"
        return {"type": "resource", "resource": {"uri": uri, "mimeType": media_type, "blob": data}}
    if kind == "resource_ref":
        return {"type": "resource_link", "uri": part.resource_ref, "name": part.resource_ref}
    return _text(part.text)
