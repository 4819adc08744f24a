"""Composes the runner of HTTP endpoints: its connections, its secrets and its circuits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import grpc.aio

from libs.common.rpc.application import Resource
from libs.common.runtime.clock import Clock
from libs.common.telemetry.log import Log
from services.executor.adapters.circuits.recent_changes import RecentChanges
from services.executor.adapters.circuits.shared_circuits import SharedCircuits
from services.executor.adapters.circuits.transition_records import TransitionRecords
from services.executor.adapters.circuits.valkey_circuits import ValkeyCircuits
from services.executor.adapters.runners.http.runner import HttpRunner
from services.executor.adapters.runners.middleware import ErrorMappingRunner, MetricsRunner
from services.executor.adapters.secrets.folder_secrets import FolderSecrets
from services.executor.adapters.secrets.oauth.authz_assertions import AuthzAssertions
from services.executor.adapters.secrets.oauth.oauth_secrets import OAuthSecrets
from services.executor.adapters.secrets.oauth.token_connections import TokenConnections
from services.executor.config import Settings
from services.executor.domain.ports import AuditTrail, Runner, SecretStore
from services.executor.domain.scheduling.heavy_work import HeavyWork
from services.executor.secret_wiring import build_secret_folders


@dataclass(frozen=True, slots=True)
class HttpParts:
    """The runner, and what is closed with it."""

    runner: Runner
    secrets: SecretStore
    circuits: SharedCircuits
    """What other runners of external services share with it."""
    circuit_changes: RecentChanges
    resources: Sequence[Resource]


def build_http_runner(
    settings: Settings, authz: grpc.aio.Channel, clock: Clock, log: Log, trail: AuditTrail, heavy_work: HeavyWork
) -> HttpParts:
    """Build the runner with its secrets."""
    records = TransitionRecords(trail, clock, log)
    changes = RecentChanges(clock)
    circuits = SharedCircuits(ValkeyCircuits(settings.redis_url), clock, log, records.record, changes)
    stored = FolderSecrets(build_secret_folders(settings, log), clock)
    connections = TokenConnections(settings.egress_internal)
    secrets = OAuthSecrets(stored, connections.request, AuthzAssertions(authz), log)
    runner = HttpRunner(
        settings.egress_internal,
        secrets,
        circuits,
        clock,
        log,
        heavy_work,
        output_bytes=settings.result_max_bytes,
    )
    return HttpParts(
        MetricsRunner(ErrorMappingRunner(runner, log), "http"),
        secrets,
        circuits,
        changes,
        # Stopped in reverse order: the last changes of circuits are recorded after the last request.
        [
            Resource(stop=records.stop),
            Resource(stop=circuits.close),
            Resource(stop=stored.close),
            Resource(stop=connections.close),
            Resource(stop=runner.close),
        ],
    )
