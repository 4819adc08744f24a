"""Composes the runner of HTTP endpoints: its connections and its secrets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from libs.common.runtime.clock import Clock
from libs.common.secret_store.folders import MountedFolder, SealedFolder, SecretFolder
from libs.common.telemetry.log import Log
from services.executor.adapters.runners.http.runner import HttpRunner
from services.executor.adapters.runners.middleware import ErrorMappingRunner, MetricsRunner
from services.executor.adapters.secrets.folder_secrets import FolderSecrets
from services.executor.config import Settings
from services.executor.domain.ports import Runner


@dataclass(frozen=True, slots=True)
class HttpParts:
    """The runner, and how it is closed."""

    runner: Runner
    close: Callable[[], Awaitable[None]]


def build_http_runner(settings: Settings, clock: Clock, log: Log) -> HttpParts:
    """Build the runner with its secrets: encrypted ones first, then mounted files."""
    folders: list[SecretFolder] = []
    if settings.secret_store is not None:
        folders.append(SealedFolder(settings.secret_store, settings.sealing_keys))
    if settings.secret_files is not None:
        folders.append(MountedFolder(settings.secret_files))
    runner = HttpRunner(settings.egress_internal, FolderSecrets(folders, clock), clock, log, settings.result_max_bytes)
    return HttpParts(MetricsRunner(ErrorMappingRunner(runner, log), "http"), runner.close)
