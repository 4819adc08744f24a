"""The runtime document (`runtime.json`): written by the runner, shown by `status`, read by clients."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from typing import Any

from localmesh.composition import Mesh, load, pack_folders
from localmesh.process.child import RunAs
from localmesh.process.memory import Children, Memory, all_children, family, proportional, resident
from localmesh.process.part import Part
from localmesh.process.supervisor import Member
from localmesh.settings import AUDIENCE, ISSUER, LOOPBACK, TRUST_DOMAIN, Settings
from localmesh.state.pki import Pki
from localmesh.state.secrets import read_secrets
from localmesh.state.state import State

Document = dict[str, Any]


def static_runtime_fields(mesh: Mesh, composition: str, started_at: str) -> Document:
    """Returns the fields that do not change while a mesh runs."""
    edge = f"{LOOPBACK}:{mesh.ports['edge']}"
    return {
        "running": True,
        "state": str(mesh.state.path),
        "runner_pid": os.getpid(),
        "started_at": started_at,
        "gateway": {"url": f"http://{edge}", "tls_url": f"https://{LOOPBACK}:{mesh.ports['edge-tls']}"},
        "grpc": {"address": edge},
        "ca": str(mesh.pki.ca),
        "operator": _identity(mesh.pki, "operator"),
        "orchestrator": _identity(mesh.pki, "orchestrator"),
        "trust_domain": TRUST_DOMAIN,
        "issuer": ISSUER,
        "audience": AUDIENCE,
        "composition": composition,
        "ports": dict(mesh.ports),
        "packs": pack_folders(mesh),
    }


def runtime_document(facts: Document, members: Iterable[Member], ready_seconds: float | None) -> Document:
    """Returns the whole document, without measuring memory."""
    services = [
        {
            "name": member.part.name,
            "address": member.part.address,
            "ops": member.part.ops,
            "pid": member.pid,
            "ready": member.ready,
            "rss_bytes": None,
            "restarts": member.restarts,
        }
        for member in members
    ]
    return {**facts, "ready_seconds": ready_seconds, "rss_bytes": None, "services": services}


def with_memory(document: Document) -> Document:
    """Returns the document with the memory of every part and of all processes together, the runner included."""
    children = all_children()
    services = []
    for entry in document["services"]:
        memory = _memory(entry, children)
        services.append({**entry, "rss_bytes": memory.bytes, "memory_kind": memory.kind})
    runner = resident([document["runner_pid"]]).bytes
    total = runner + sum(entry["rss_bytes"] for entry in services)
    return {**document, "rss_bytes": total, "runner_rss_bytes": runner, "services": services}


async def with_readiness(document: Document, state: State) -> Document:
    """Returns the document with each part's current readiness and what it says of itself."""
    parts = {part.name: part for part in load(document["composition"])(_rebuilt(document["ports"], state))}
    answers = await asyncio.gather(*(_answers(parts[entry["name"]]) for entry in document["services"]))
    services = [
        {**entry, "ready": ready, "detail": detail}
        for entry, (ready, detail) in zip(document["services"], answers, strict=True)
    ]
    return {**document, "services": services}


def _rebuilt(ports: Mapping[str, int], state: State) -> Mesh:
    # Good for asking, not for starting: the user only matters to a process that is to begin.
    return Mesh(state, ports, read_secrets(state), Pki(state.pki), Settings(), RunAs.OURSELVES)


async def _answers(part: Part) -> tuple[bool, list[str]]:
    try:
        return await part.probe(), (await part.detail()).splitlines()
    except OSError:
        return False, []


def _identity(pki: Pki, name: str) -> dict[str, str]:
    identity = pki.of(name)
    return {"cert": str(identity.cert), "key": str(identity.key)}


def _memory(entry: Document, children: Children) -> Memory:
    if not entry["pid"]:
        return Memory(0, "rss")
    # PostgreSQL's processes share their buffers; to count those once for each of them would be to invent memory.
    measure = proportional if entry["name"] == "postgres" else resident
    return measure(family(entry["pid"], children))
