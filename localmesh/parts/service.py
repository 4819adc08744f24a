"""One of the mesh's own services, started as `python -m services.<name>` with the environment of its contract.

Before its first start its schema is migrated, as the schema's owner. The service itself never has the owner's password.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from localmesh.exit_codes import WRONG_USAGE
from localmesh.parts.migrations import Migrations
from localmesh.ports import replica_name
from localmesh.process.child import Launch
from localmesh.process.part import Part
from localmesh.process.probes import http_answers, http_request
from localmesh.settings import AUDIENCE, ISSUER, LEAN, LOOPBACK, ROOT, TRUST_DOMAIN, Settings, inherited_environment
from localmesh.state.pki import Pki

# Beyond its own drain a service gets this long to close what is left.
STOP_MARGIN_SECONDS = 2.0


@dataclass(frozen=True)
class ServicePlan:
    """The settings of one service beyond the common ones."""

    name: str
    after: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    migrations: Migrations | None = None
    """Migrates its schema before the first start; None for all replicas but the first."""
    replica: int = 1

    @property
    def part(self) -> str:
        return replica_name(self.name, self.replica)


def service_part(plan: ServicePlan, ports: Mapping[str, int], pki: Pki, settings: Settings) -> Part:
    """Returns the part. It is ready when its operator's port reports ready."""
    ops = ports[f"{plan.part}-ops"]
    environment = {
        **inherited_environment(),
        "PYTHONUNBUFFERED": "1",
        **_contract(plan, ports, pki, settings),
        **plan.environment,
    }

    async def migrate() -> None:
        if plan.migrations is not None:
            await plan.migrations.finish(plan.name)

    async def probe() -> bool:
        return await http_answers(ops, "/readyz")

    async def detail() -> str:
        _, body = await http_request(ops, "GET", "/readyz")
        return body.decode("utf-8", "replace").partition("\n")[2]

    return Part(
        name=plan.part,
        launch=Launch((sys.executable, *LEAN, "-m", f"services.{plan.name}"), ROOT, environment),
        initialize=migrate,
        probe=probe,
        detail=detail,
        address=f"{LOOPBACK}:{ports[plan.part]}",
        ops=f"{LOOPBACK}:{ops}",
        after=plan.after,
        stop_seconds=settings.drain_seconds + STOP_MARGIN_SECONDS,
        misled_code=WRONG_USAGE,
    )


def _contract(plan: ServicePlan, ports: Mapping[str, int], pki: Pki, settings: Settings) -> dict[str, str]:
    identity = pki.of(plan.name)
    contract = {
        "TOOLMESH_LISTEN": f"{LOOPBACK}:{ports[plan.part]}",
        "TOOLMESH_OPS_LISTEN": f"{LOOPBACK}:{ports[f'{plan.part}-ops']}",
        "TOOLMESH_TLS_CERT": str(identity.cert),
        "TOOLMESH_TLS_KEY": str(identity.key),
        "TOOLMESH_TLS_CA": str(pki.ca),
        "TOOLMESH_TRUST_DOMAIN": TRUST_DOMAIN,
        "TOOLMESH_ISSUER": ISSUER,
        "TOOLMESH_AUDIENCE": AUDIENCE,
        "TOOLMESH_MAX_TOKEN_LIFETIME": str(settings.max_token_lifetime),
        "TOOLMESH_PUBLIC_ORIGINS": ",".join(_public_origins(ports)),
        "TOOLMESH_ENVIRONMENT": "local",
        "TOOLMESH_INSTANCE_ID": f"{plan.name}-{plan.replica - 1}",
        "TOOLMESH_LOG_LEVEL": settings.log_level,
        "TOOLMESH_DRAIN_SECONDS": f"{settings.drain_seconds:g}",
        "TOOLMESH_TRACE_SAMPLE_RATIO": f"{settings.trace_sample_ratio:g}",
    }
    if settings.otlp_endpoint:
        contract["TOOLMESH_OTLP_ENDPOINT"] = settings.otlp_endpoint
    return contract


def _public_origins(ports: Mapping[str, int]) -> Iterator[str]:
    for host in (LOOPBACK, "localhost"):
        yield f"http://{host}:{ports['edge']}"
        yield f"https://{host}:{ports['edge-tls']}"
