"""The tools of the pack `failing`: what their manifests say, and a mesh that has them, with the policies and the hook
they need."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.harness.executors.announcing import announced_executor
from tests.harness.mesh import Mesh, cli, running_mesh

NAMESPACE = "failing"
PACKS = Path(__file__).resolve().parent / "packs"
POLICIES = """
@id("failing-letters-are-examined")
@effect("allow")
@reason("Nothing personal leaves in a letter.")
@redact_pii("true")
permit (principal, action, resource) when { resource.namespace == "failing" && resource.tool_id == "long_letter" };

@id("failing-previews-first")
@effect("allow")
@reason("It is previewed before it runs.")
@require_dry_run("true")
permit (principal, action, resource) when { resource.namespace == "failing" && resource.tool_id == "previewed" };

@id("failing-asks-a-person")
@effect("needs_approval")
@reason("Somebody must look at this.")
forbid (principal, action == Action::"invoke_without_approval", resource)
when { resource.namespace == "failing" && resource.tool_id == "frozen" };
"""
HOOKS = [
    {
        "name": "stopping",
        "phase": "pre",
        "tools": [f"{NAMESPACE}.hooked"],
        "kind": "plugin",
        "entry_point": "tests.harness.executors.stopping_hook:stop",
    },
    {
        "name": "freeze",
        "phase": "approval",
        "tools": [f"{NAMESPACE}.*"],
        "kind": "plugin",
        "entry_point": "tests.harness.executors.stopping_hook:reject",
    },
]
_DONE = {"type": "object", "properties": {"done": {"type": "boolean"}}, "required": ["done"]}
_OPERATIONS = ("create", "update")
_NAMED = {"name": {"type": "string", "pattern": "^[a-z0-9-]+$"}, "files": {"type": "integer"}}
# Long enough for a busy machine: only what waits for its end should meet it.
_PATIENT = {"timeout_class": "long_running", "timeout_default": "25s"}
_SHORT = {"timeout_class": "standard", "timeout_default": "0.8s"}
_WRITER: dict[str, Any] = {
    "interface": {"safety": {"read_only": False, "non_destructive": False, "concurrency_safe": False}},
    "mutation_class": "write_reversible",
    "idempotency": {"mode": "key_required", "uncertain_outcome": "fail"},
    "compensation_tool": f"tools/{NAMESPACE}.fine",
    "input": {"examples": [{"arguments": {"name": "first"}}]},
}


def _files(verb: str) -> dict[str, Any]:
    return {
        "execution": {"access_tier": "files"},
        "permission": {"required_permissions": [f"filesystem:{verb}:notes"]},
    }


def _tier(tier: str) -> dict[str, Any]:
    return {"interface": {"safety": {"sandbox_tier": tier}}}


def _effect(resource: str, operation: str) -> dict[str, Any]:
    return {"side_effects": [{"resource": resource, "operation": operation}]}


def documents() -> list[dict[str, Any]]:
    """Return a manifest for every tool."""
    text, whole, flag = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
    path = {"interface": {"permission_matchers": [{"target": "path", "argument_pointer": "/path"}]}}
    reach = {"access_tier": "network", "network_policy": {"deny_all_egress": False, "allowed_domains": ["a.example"]}}
    letters: dict[str, Any] = {
        "output": {"schema": {"type": "object", "properties": {"letter": text}, "required": ["letter"]}}
    }
    curt = {"output": {"max_inline_bytes": 1000, "persistence_opt_out": True}}
    parts = {"output": {"schema": {"type": "object"}}}
    written, elsewhere = _effect("file:notes/*", "create"), _effect("file:notes/inbox/*", "create")
    anything = {"side_effects": [_effect("file:notes/*", verb)["side_effects"][0] for verb in _OPERATIONS]}
    return [
        _manifest("strict", "breaks_its_schema"),
        _manifest("long_letter", "long_letter", {"characters": whole}, letters),
        _manifest("curt", "long_letter", {"characters": whole}, letters, curt),
        _manifest("opens", "fine", {"path": text}, path),
        _manifest("hooked", "fine"),
        _manifest("frozen", "fine"),
        _manifest("previewed", "fine", {}, {"dry_run_supported": True}),
        _manifest("fails", "fails", {"partial": flag}),
        _manifest("raises", "raises"),
        _manifest("late", "waits", {}, {"execution": _SHORT}),
        _manifest("waits", "waits"),
        _manifest("never_loads", "fine", {}, {"execution": {"entry_point": "failing/never_loads:fine"}}),
        _manifest("devours", "devours"),
        _manifest("leaves", "leaves"),
        _manifest("needs_machine", "fine", {}, _tier("machine")),
        _manifest("needs_kernel", "fine", {}, _tier("kernel")),
        _manifest("calls_out", "calls_out", {"host": text}, {"execution": reach}),
        _manifest("stutters", "stutters", {}, parts),
        _manifest("books", "fine", _NAMED, _WRITER, _effect("order:*", "create")),
        # It may reach another system, so it is unknown whether it did.
        _manifest(
            "books_late", "waits", _NAMED, _WRITER, {"execution": {**reach, **_SHORT}}, _effect("order:*", "create")
        ),
        _manifest("keeps_notes", "writes", _NAMED, _WRITER, _files("write"), written),
        _manifest("rewrites", "rewrites", _NAMED, _WRITER, _files("write"), anything),
        _manifest("misplaces_notes", "writes", _NAMED, _WRITER, _files("write"), elsewhere),
        _manifest("reads_notes", "writes", _NAMED, _files("read")),
        _manifest("boasts", "boasts"),
        _manifest("goes_wrong", ["pack:failing/bin/goes_wrong.py", "{way}"], {"way": text}),
        _manifest("fine", "fine", {"count": whole}, {"input": {"mutation_policy": "defaults"}}),
    ]


def _manifest(
    tool_id: str, code: str | list[str], properties: dict[str, Any] | None = None, *changes: dict[str, Any]
) -> dict[str, Any]:
    """A read-only tool of the pack: a function, or a command if its code is a list. Changes are laid over it."""
    command = isinstance(code, list)
    document: dict[str, Any] = {
        "schema_version": "0.2.0",
        "tool_id": tool_id,
        "namespace": NAMESPACE,
        "version": "1.0.0",
        "title": tool_id.replace("_", " ").capitalize(),
        "description": f"Goes wrong in its own way ({tool_id}).",
        "provider": NAMESPACE,
        "kind": "function",
        "protocol": "native",
        "input": {"schema": {"type": "object", "properties": properties or {}, "additionalProperties": False}},
        "output": {"schema": _DONE},
        "interface": {
            "safety": {
                "read_only": True,
                "non_destructive": True,
                "closed_world": True,
                "concurrency_safe": True,
                "sandbox_tier": "process",
            }
        },
        "execution": {
            **_PATIENT,
            "runner": "command" if command else "python",
            "entry_point": json.dumps(code) if command else f"failing/mishaps:{code}",
            "resource_limits": {"memory": "96Mi", "ephemeral_storage": "4Mi", "max_processes": 8},
            "network_policy": {"deny_all_egress": True},
        },
        "permission": {"required_scopes": ["tools:call"]},
        "mutation_class": "read_only",
        "idempotency": {"mode": "natural", "uncertain_outcome": "repeat"},
        "observability": {"audit_detail": "summary"},
    }
    for change in changes:
        _lay(change, document)
    return document


def _lay(change: dict[str, Any], document: dict[str, Any]) -> None:
    for name, value in change.items():
        if isinstance(value, dict) and isinstance(document.get(name), dict) and name != "schema":
            _lay(value, document[name])
        else:
            document[name] = value


@contextmanager
def failing_mesh(folder: Path) -> Iterator[Mesh]:
    """Run a mesh that has the tools, a volume `notes` for them below the folder, and a gVisor that cannot confine
    anything."""
    state, notes, hooks, rules, gvisor = (folder / name for name in ("state", "notes", "hooks.json", "rules", "runsc"))
    notes.mkdir()
    rules.mkdir()
    hooks.write_text(json.dumps(HOOKS))
    (rules / "failing.cedar").write_text(POLICIES)
    gvisor.write_text("#!/bin/sh\nexit 1\n")
    gvisor.chmod(0o755)
    named = {
        "TOOLMESH_TOOL_PACKS": str(PACKS),
        "TOOLMESH_VOLUMES": f"notes={notes}:shared",
        "TOOLMESH_HOOKS": str(hooks),
        "TOOLMESH_RUNSC": str(gvisor),
        "TOOLMESH_SANDBOX_START_SECONDS": "10",
    }
    with running_mesh(state, **named) as mesh:
        put = json.loads(cli("policy", "put", str(rules), "-m", "failing", "--json", state=state).stdout)
        cli("policy", "activate", put["policy_set"]["name"].removeprefix("policySets/"), state=state)
        manifests = []
        for document in documents():
            manifests.append(folder / f"{document['tool_id']}.json")
            manifests[-1].write_text(json.dumps(document))
        # Some need a sandbox that only another executor has.
        with announced_executor(mesh, NAMESPACE):
            cli("tools", "register", *map(str, manifests), state=state)
        yield mesh
