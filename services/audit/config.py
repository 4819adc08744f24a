"""The settings of the audit service."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from libs.common.runtime.settings import (
    Address,
    ProcessSettings,
    SettingsError,
    address,
    existing_file,
    existing_folder,
    file_of,
    number,
    one_of,
    postgres_url,
    redis_url,
    setting,
    whole,
)
from services.audit.adapters.evidence.checkpoint_key import FileCheckpointKey
from services.audit.domain.evidence.cosignature import WitnessKey, witness_keys


def known_witnesses(path: Path) -> list[WitnessKey]:
    """Return the keys in a file of verifier keys, one in a line. Raises ValueError for anything else."""
    return witness_keys(path.read_text().splitlines())


@dataclass(frozen=True, kw_only=True)
class Settings(ProcessSettings):
    """What the service needs beside what every process needs."""

    database_url: str = setting("DATABASE_URL", postgres_url, secret=True)
    authz_address: Address = setting("AUTHZ_ADDRESS", address)
    checkpoint_key: Path = setting("CHECKPOINT_KEY", file_of("an Ed25519 private key in PEM", FileCheckpointKey))
    # The role that owns the log; without it the service's own role must, and could then undo its own guards.
    migration_database_url: str = setting("MIGRATION_DATABASE_URL", postgres_url, default="", secret=True)
    shard_records: int = setting("SHARD_RECORDS", whole(1, 1_000_000_000), default=10_000_000)
    shard_days: float = setting("SHARD_DAYS", number(0.001, 366), default=31.0)
    checkpoint_records: int = setting("CHECKPOINT_RECORDS", whole(1, 1_000_000_000), default=10_000)
    checkpoint_seconds: float = setting("CHECKPOINT_SECONDS", number(0.1, 86_400), default=60.0)
    # A file of verifier keys, one in a line.
    witness_keys: Path | None = setting(
        "WITNESS_KEYS", file_of("verifier keys of witnesses, one in a line", known_witnesses), default=None
    )
    anchor_folder: Path | None = setting("ANCHOR_FOLDER", existing_folder, default=None)
    retention_years: int = setting("RETENTION_YEARS", whole(1, 7), default=7)
    relay: str = setting("RELAY", one_of("none", "redis", "kafka"), default="none")
    relay_stream_length: int = setting("RELAY_STREAM_LENGTH", whole(1_000, 100_000_000), default=10_000)
    redis_url: str = setting("REDIS_URL", redis_url, default="", secret=True)
    kafka_brokers: str = setting("KAFKA_BROKERS", str, default="")
    kafka_topic: str = setting("KAFKA_TOPIC", str, default="toolmesh.audit.records")
    # Lines `name=value` of the client library's own settings, such as those of TLS and SASL.
    kafka_config: Path | None = setting("KAFKA_CONFIG", existing_file, default=None)

    def __post_init__(self) -> None:
        needed = {
            "redis": ("TOOLMESH_REDIS_URL", self.redis_url),
            "kafka": ("TOOLMESH_KAFKA_BROKERS", self.kafka_brokers),
        }
        variable, value = needed.get(self.relay, ("", "-"))
        if not value:
            raise SettingsError([f"{variable} is required with TOOLMESH_RELAY={self.relay}"])
