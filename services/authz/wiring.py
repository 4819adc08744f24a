"""The composition root of authz: the only file that names adapters."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from sqlalchemy.ext.asyncio import AsyncEngine
from toolmesh.authz.v1 import authz_service_pb2_grpc as rpc

from libs.common.clock import Clock, SystemClock
from libs.common.rpc.application import RpcApplication, engine_resource
from libs.common.rpc.limits import MAX_TOKEN_BYTES
from libs.common.rpc.server import Service
from libs.common.sql.engine import engine_for
from libs.common.sql.migrate import migrate
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.authz.adapters.cedar_engine import CedarEngine
from services.authz.adapters.cedar_policies import load_policies
from services.authz.adapters.key_folder import KeyFolder
from services.authz.adapters.own_verifier import OwnKeysVerifier
from services.authz.adapters.postgres_ledger import PostgresLedger
from services.authz.config import Settings
from services.authz.domain.check import Check
from services.authz.domain.introspect_token import IntrospectToken
from services.authz.domain.issue_token import IssueToken
from services.authz.domain.ports import KeyRing
from services.authz.handlers import Handlers
from services.authz.policy import POLICY

SCHEMA = "authz"
MIGRATIONS = Path(__file__).parent / "migrations"
POLICIES = Path(__file__).parent / "policies"


async def build(settings: Settings, log: Log, tracing: Tracing) -> RpcApplication:
    """Compose the process with the shipped policies. Raises when keys or policies cannot be used."""
    return compose(settings, log, tracing, clock=SystemClock(), policies=POLICIES)


def compose(settings: Settings, log: Log, tracing: Tracing, *, clock: Clock, policies: Path) -> RpcApplication:
    """Compose the process with a clock and a policy set."""
    keys = KeyFolder(settings.signing_keys, clock, log)
    verifier = OwnKeysVerifier(keys, issuer=settings.issuer, audience=settings.audience)
    database = engine_for(settings.database_url, schema=SCHEMA)
    handlers = Handlers(
        issue_token=_issue_token(settings, keys, database, clock),
        introspect_token=IntrospectToken(verifier),
        keys=keys,
        check=Check(
            engine=CedarEngine(load_policies(policies), log),
            clock=clock,
            environment=settings.environment,
            ttl=timedelta(seconds=settings.decision_ttl),
        ),
    )
    return RpcApplication(
        settings,
        log,
        tracing,
        policy=POLICY,
        verifier=verifier,
        services=[
            Service("toolmesh.authz.v1.AuthzService", lambda s: rpc.add_AuthzServiceServicer_to_server(handlers, s))
        ],
        resources=[engine_resource(database, lambda: migrate(database, MIGRATIONS, schema=SCHEMA))],
    )


def _issue_token(settings: Settings, keys: KeyRing, database: AsyncEngine, clock: Clock) -> IssueToken:
    return IssueToken(
        keys=keys,
        ledger=PostgresLedger(database),
        clock=clock,
        issuer=settings.issuer,
        audience=settings.audience,
        max_lifetime=settings.max_token_lifetime,
        max_token_bytes=MAX_TOKEN_BYTES,
    )
