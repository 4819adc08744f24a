"""Derives the manifest of a decorated function: its contract from the signature, the rest from the options."""

from __future__ import annotations

from typing import Any

from toolmesh_sdk.manifests.defaults import complete

from authoring.manifests.violation_advice import merge_patch, snake_case
from authoring.packs.derive_schema import UnderivableError, input_schema, output_schema, summary_of

_TEXTS = {
    "title": "title",
    "version": "version",
    "mutation_class": "mutation_class",
    "compensation": "compensation_tool",
}


def derive_manifest(entry: Any, pack: str, call_type: type) -> dict[str, Any]:
    """Return the manifest of one tool. Raises UnderivableError with the part of the function that is at fault."""
    function, options = entry.tool_function, entry.tool_options
    description = summary_of(function.__doc__ or "")
    if not description:
        raise UnderivableError(function.__name__, "has no docstring, which becomes the description")
    module = function.__module__.removeprefix(f"{pack}.")
    document: dict[str, Any] = {
        "namespace": options.get("namespace") or pack.replace("_", "-"),
        "tool_id": options.get("name") or snake_case(function.__name__),
        "description": description,
        "input": {"schema": input_schema(function, call_type)},
        "output": {"schema": output_schema(function)},
        "execution": {"entry_point": f"{pack}/{module}:{function.__qualname__}", **_execution(options)},
    }
    document |= {field: options[option] for option, field in _TEXTS.items() if option in options}
    if "tier" in options:
        document["interface"] = {"safety": {"sandbox_tier": options["tier"]}}
    _add_permissions(document, options)
    if "examples" in options:
        document["input"]["examples"] = [
            {"arguments": arguments, **({"result": result[0]} if result else {})}
            for arguments, *result in options["examples"]
        ]
    for option in ("side_effects", "idempotency", "tags"):
        if option in options:
            document[option] = options[option]
    if options.get("dry_run") or hasattr(function, "preview"):
        document["dry_run_supported"] = True
    completed: dict[str, Any] = complete(merge_patch(document, options.get("manifest", {})))
    return completed


def _execution(options: dict[str, Any]) -> dict[str, Any]:
    execution: dict[str, Any] = {}
    if "timeout_class" in options:
        execution["timeout_class"] = options["timeout_class"]
    if "timeout" in options:
        execution["timeout_default"] = f"{options['timeout']:g}s"
    for option, field in (("progress", "progress_supported"), ("cancellation", "cancellation_supported")):
        if options.get(option):
            execution[field] = True
    if "checkpoint" in options:
        execution["checkpoint"] = {"enabled": True, **options["checkpoint"]}
    if "secrets" in options:
        execution["secrets"] = _secrets(options["secrets"])
    if "memory" in options:
        execution["resource_limits"] = {"memory": options["memory"]}
    if options.get("hosts"):
        ports = {"allowed_ports": list(options["ports"])} if "ports" in options else {}
        execution |= {"access_tier": "network", "network_policy": {"allowed_domains": list(options["hosts"]), **ports}}
    elif options.get("reads") or options.get("writes"):
        execution["access_tier"] = "files"
    return execution


def _secrets(given: Any) -> list[dict[str, Any]]:
    if not isinstance(given, dict):
        raise UnderivableError("secrets", 'is no dictionary such as {"api_key": "secret://weather"}')
    return [{"name": name, "secret": secret} for name, secret in given.items()]


def _add_permissions(document: dict[str, Any], options: dict[str, Any]) -> None:
    permissions = [f"filesystem:read:{volume}" for volume in options.get("reads", ())]
    permissions += [f"filesystem:write:{volume}" for volume in options.get("writes", ())]
    permission: dict[str, Any] = {"required_permissions": permissions} if permissions else {}
    if "scopes" in options:
        permission["required_scopes"] = list(options["scopes"])
    if permission:
        document["permission"] = permission
