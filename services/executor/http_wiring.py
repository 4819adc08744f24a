"""Composes the runner of HTTP endpoints: its connections, its secrets and its circuits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import grpc.aio

from libs.common.rpc.application import Resource
from libs.common.runtime.clock import Clock
from libs.common.secret_store.folders import MountedFolder, SealedFolder, SecretFolder
from libs.common.telemetry.log import Log
from services.executor.adapters.circuits.shared_circuits import SharedCircuits
from services.executor.adapters.circuits.transition_records import TransitionRecords
from services.executor.adapters.circuits.valkey_circuits import ValkeyCircuits
from services.executor.adapters.runners.http.runner import HttpRunner
from services.executor.adapters.runners.middleware import ErrorMappingRunner, MetricsRunner
from services.executor.adapters.secrets.folder_secrets import FolderSecrets
from services.executor.adapters.secrets.oauth.authz_assertions import AuthzAssertions
from services.executor.adapters.secrets.oauth.oauth_secrets import OAuthSecrets
from services.executor.adapters.secrets.oauth.token_connections import TokenConnections
from services.executor.adapters.secrets.vault.session import VaultAddress, VaultLogin, VaultSession
from services.executor.adapters.secrets.vault.vault_folder import VaultFolder
from services.executor.config import Settings
from services.executor.domain.ports import AuditTrail, Runner, SecretStore
from services.executor.domain.resilience.circuit import Circuits
from services.executor.domain.scheduling.heavy_work import HeavyWork


@dataclass(frozen=True, slots=True)
class HttpParts:
    """The runner, and what is closed with it."""

    runner: Runner
    secrets: SecretStore
    circuits: Circuits
    """What other runners of external services share with it."""
    resources: Sequence[Resource]


def build_http_runner(
    settings: Settings, authz: grpc.aio.Channel, clock: Clock, log: Log, trail: AuditTrail, heavy_work: HeavyWork
) -> HttpParts:
    """Build the runner with its secrets: encrypted ones first, then mounted files, then Vault."""
    folders: list[SecretFolder] = []
    if settings.secret_store is not None:
        folders.append(SealedFolder(settings.secret_store, settings.sealing_keys))
    if settings.secret_files is not None:
        folders.append(MountedFolder(settings.secret_files))
    if settings.vault_address is not None and settings.vault_credential is not None:
        address = VaultAddress(
            settings.vault_address,
            VaultLogin(settings.vault_login),
            settings.vault_credential,
            role=settings.vault_role,
            auth_mount=settings.vault_mount,
            namespace=settings.vault_namespace,
            ca_file=settings.vault_ca,
        )
        folders.append(VaultFolder(VaultSession(address), settings.vault_path, log))
    records = TransitionRecords(trail, clock, log)
    circuits = SharedCircuits(ValkeyCircuits(settings.redis_url), clock, log, records.record)
    stored = FolderSecrets(folders, clock)
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
        # Stopped in reverse order: the last changes of circuits are recorded after the last request.
        [
            Resource(stop=records.stop),
            Resource(stop=circuits.close),
            Resource(stop=stored.close),
            Resource(stop=connections.close),
            Resource(stop=runner.close),
        ],
    )
