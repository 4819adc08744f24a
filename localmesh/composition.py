"""The parts of a local mesh in start order; they stop in reverse."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from localmesh import wheels
from localmesh.parts.cluster import PostgresPlan, choose_folder
from localmesh.parts.envoy import EnvoyPlan, envoy_part
from localmesh.parts.migrations import Migrations
from localmesh.parts.postgres import database_url, postgres_part
from localmesh.parts.service import ServicePlan, service_part
from localmesh.parts.valkey import valkey_part, valkey_url
from localmesh.ports import replica_names
from localmesh.process.child import RunAs
from localmesh.process.part import Part
from localmesh.settings import LOOPBACK, Settings
from localmesh.state.pki import Pki
from localmesh.state.secrets import SCHEMA_OWNERS, Secrets
from localmesh.state.state import State

SERVICES = ("authz", "audit", "registry", "approval", "executor", "gateway")
DEFAULT = "localmesh.composition:compose"


@dataclass(frozen=True)
class Mesh:
    """The plan of a mesh, complete before the first part starts."""

    state: State
    ports: Mapping[str, int]
    secrets: Secrets = field(repr=False)
    pki: Pki
    settings: Settings
    postgres_user: RunAs


Compose = Callable[[Mesh], Sequence[Part]]


def compose(mesh: Mesh) -> Sequence[Part]:
    """Lists the parts. Parts with the same `after` start together; services wait for their peers themselves."""
    schemas = Migrations({name: _owner_url(mesh, name) for name in SERVICES if name in mesh.secrets.database})
    return [
        # First, because the schema of every service but the gateway is migrated before the service starts.
        postgres_part(postgres_plan(mesh)),
        # Needs nothing, so it starts beside PostgreSQL; the registry needs it.
        _valkey(mesh),
        # The first service: all others fetch the keys for caller tokens from it.
        *_service(mesh, schemas, "authz", _authz(mesh) | _redis(mesh, "authz") | _peers(mesh, "audit")),
        # Stops after the executor, whose last records it must still take. Its relay waits for Valkey by itself.
        *_service(mesh, schemas, "audit", _audit(mesh) | _peers(mesh, "authz")),
        # Before the executor, which keeps a view of it.
        *_service(
            mesh,
            schemas,
            "registry",
            _redis(mesh, "registry") | _peers(mesh, "authz", "audit"),
            after=("postgres", "valkey"),
        ),
        # No part waits for it at start. It precedes the executor, which redeems its tickets.
        *_service(mesh, schemas, "approval", _approval(mesh) | _peers(mesh, "authz", "audit")),
        # After those it calls, so that on the way down it ends its work while they still answer.
        *_service(
            mesh,
            schemas,
            "executor",
            {
                "TOOLMESH_SEALING_KEYS": str(mesh.secrets.sealing_keys),
                "TOOLMESH_SECRET_STORE": str(mesh.secrets.tool_secrets),
            }
            | _redis(mesh, "executor")
            | _sandboxes(mesh)
            | _vault(mesh)
            | _peers(mesh, "registry", "authz", "audit", "approval"),
        ),
        # The last service: it only translates. It has no database, so it need not wait for one.
        *_service(
            mesh,
            schemas,
            "gateway",
            _redis(mesh, "gateway")
            | _views(mesh)
            | _console(mesh)
            | _peers(mesh, "executor", "registry", "authz", "audit", "approval"),
            after=(),
        ),
        # Last in, first out: callers come only when all is ready, and are sent away before anything stops.
        envoy_part(
            _envoy_plan(mesh), after=tuple(part for name in SERVICES for part in replica_names(mesh.ports, name))
        ),
    ]


def load(name: str) -> Compose:
    """Loads the composition `module:function`. Tests name their own."""
    module, _, function = name.partition(":")
    found: Compose = getattr(importlib.import_module(module), function)
    return found


def postgres_plan(mesh: Mesh) -> PostgresPlan:
    """Returns the folder and user of PostgreSQL."""
    return PostgresPlan(
        programs=wheels.postgres_programs(),
        folder=choose_folder(mesh.state.path, mesh.postgres_user),
        port=mesh.ports["postgres"],
        passwords=mesh.secrets.database,
        run_as=mesh.postgres_user,
    )


def _service(
    mesh: Mesh, schemas: Migrations, name: str, environment: Mapping[str, str], after: tuple[str, ...] = ("postgres",)
) -> list[Part]:
    """Returns the parts of a service: one for each of its replicas. The first one waits for its migrated schema."""
    own = dict(environment)
    if name in mesh.secrets.database:
        own["TOOLMESH_DATABASE_URL"] = _database_url(mesh, name)
    plans = [ServicePlan(name, after, own, schemas)]
    for replica in range(2, 1 + len(replica_names(mesh.ports, name))):
        plans.append(ServicePlan(name, (*after, name), own, replica=replica))
    return [service_part(plan, mesh.ports, mesh.pki, mesh.settings) for plan in plans]


def _owner_url(mesh: Mesh, service: str) -> str:
    return _database_url(mesh, SCHEMA_OWNERS.get(service, service))


def _authz(mesh: Mesh) -> dict[str, str]:
    return {
        "TOOLMESH_SIGNING_KEYS": str(mesh.secrets.signing_keys),
        "TOOLMESH_SEALING_KEYS": str(mesh.secrets.sealing_keys),
        "TOOLMESH_TRUSTED_ISSUERS": mesh.settings.trusted_issuers,
        "TOOLMESH_DID_RESOLVER": mesh.settings.did_resolver,
    }


def _audit(mesh: Mesh) -> dict[str, str]:
    return {
        "TOOLMESH_CHECKPOINT_KEY": str(mesh.secrets.checkpoint_key),
        "TOOLMESH_RELAY": mesh.settings.relay,
        "TOOLMESH_KAFKA_BROKERS": mesh.settings.kafka_brokers,
    } | _redis(mesh, "audit")


def _console(mesh: Mesh) -> dict[str, str]:
    return {
        "TOOLMESH_CONSOLE_KEYS": str(mesh.secrets.console_keys),
        "TOOLMESH_CONSOLE_OIDC_ISSUER": mesh.settings.console_oidc_issuer,
        "TOOLMESH_CONSOLE_OIDC_CLIENT_ID": mesh.settings.console_oidc_client_id,
        "TOOLMESH_CONSOLE_OIDC_CLIENT_SECRET": mesh.settings.console_oidc_client_secret,
        "TOOLMESH_CONSOLE_OIDC_CA": mesh.settings.console_oidc_ca,
    }


def _sandboxes(mesh: Mesh) -> dict[str, str]:
    """Settings of sandboxed tools. A local mesh has one volume unless others are named."""
    settings = mesh.settings
    if not (volumes := settings.volumes):
        reports = mesh.state.path / "volumes" / "reports"
        reports.mkdir(parents=True, exist_ok=True)
        volumes = f"reports={reports}"
    named = {
        "TOOLMESH_TOOL_PACKS": ",".join(pack_folders(mesh)),
        "TOOLMESH_VOLUMES": volumes,
        "TOOLMESH_RUNSC": settings.runsc,
        "TOOLMESH_SANDBOX_CGROUPS": settings.sandbox_cgroups,
        "TOOLMESH_SANDBOX_CGROUP_PARENT": settings.sandbox_cgroup_parent,
        "TOOLMESH_SANDBOX_FOLDERS": settings.sandbox_folders,
        "TOOLMESH_EGRESS_INTERNAL": settings.egress_internal,
        "TOOLMESH_HOOKS": settings.hooks,
    }
    return {name: value for name, value in named.items() if value}


def _vault(mesh: Mesh) -> dict[str, str]:
    """Returns the settings of the server that holds credentials, where there is one."""
    names = ("address", "path", "login", "role", "credential", "mount", "namespace", "ca")
    chosen = {f"TOOLMESH_VAULT_{name.upper()}": getattr(mesh.settings, f"vault_{name}") for name in names}
    return {name: value for name, value in chosen.items() if value}


def pack_folders(mesh: Mesh) -> list[str]:
    """Returns the folders of tool packs: those of the settings, and the mesh's own, into which `toolmesh pack dev` puts
    packs. A list in which a name has a comma could not be read again."""
    chosen, own = mesh.settings.tool_packs, mesh.state.packs
    if "," in str(own) or ("," in chosen and Path(chosen).is_dir()):
        return [chosen]
    own.mkdir(exist_ok=True)
    return [*chosen.split(","), str(own)]


def _approval(mesh: Mesh) -> dict[str, str]:
    """Returns the files of approval, where the mesh has any."""
    named = {
        "TOOLMESH_APPROVAL_RULES": mesh.settings.approval_rules,
        "TOOLMESH_APPROVAL_NOTIFICATIONS": mesh.settings.approval_notifications,
    }
    return {name: value for name, value in named.items() if value}


def _database_url(mesh: Mesh, role: str) -> str:
    return database_url(role, mesh.secrets.database[role], mesh.ports["postgres"])


def _valkey(mesh: Mesh) -> Part:
    folder, secrets = mesh.state.path / "valkey", mesh.secrets
    return valkey_part(wheels.valkey_server(), folder, mesh.ports["valkey"], secrets.valkey, secrets.valkey_users)


def _views(mesh: Mesh) -> dict[str, str]:
    """Settings of the views at `/mcp/<view>`."""
    return {"TOOLMESH_MCP_VIEWS": mesh.settings.mcp_views} if mesh.settings.mcp_views else {}


def _redis(mesh: Mesh, service: str) -> dict[str, str]:
    """Settings of a service's own user: one that is taken over reaches no key of another."""
    return {"TOOLMESH_REDIS_URL": valkey_url(mesh.secrets.valkey_users[service], mesh.ports["valkey"], service)}


def _peers(mesh: Mesh, *names: str) -> dict[str, str]:
    return {f"TOOLMESH_{name.upper()}_ADDRESS": _addresses(mesh, name) for name in names}


def _addresses(mesh: Mesh, name: str) -> str:
    return ",".join(f"{LOOPBACK}:{mesh.ports[part]}" for part in replica_names(mesh.ports, name))


def _envoy_plan(mesh: Mesh) -> EnvoyPlan:
    return EnvoyPlan(wheels.envoy(), mesh.state.path / "envoy", mesh.ports, mesh.pki, mesh.settings)
