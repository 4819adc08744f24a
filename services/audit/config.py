"""Settings of the audit process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, DirectoryPath, Field, FilePath, model_validator

from libs.common.runtime.setting_types import Peer, PostgresUrl, RedisUrl, file_with
from libs.common.runtime.settings import ProcessSettings
from services.audit.adapters.evidence.checkpoint_key import FileCheckpointKey
from services.audit.domain.evidence.cosignature import WitnessKey, witness_keys


def read_witness_keys(path: Path) -> list[WitnessKey]:
    """Read a file of verifier keys, one per line. Raises ValueError."""
    return witness_keys(path.read_text().splitlines())


CheckpointKeyFile = Annotated[FilePath, AfterValidator(file_with("an Ed25519 private key in PEM", FileCheckpointKey))]
WitnessKeysFile = Annotated[
    FilePath, AfterValidator(file_with("verifier keys of witnesses, one per line", read_witness_keys))
]


class Settings(ProcessSettings):
    """The settings of audit."""

    database_url: PostgresUrl = Field(description="PostgreSQL database of the log.")
    authz_address: Peer = Field(description="Address of authz: public keys and revocations.")
    checkpoint_key: CheckpointKeyFile = Field(description="Private key that signs checkpoints (Ed25519, PEM).")
    shard_records: int = Field(10_000_000, ge=1, le=1_000_000_000, description="Most records in a shard of the log.")
    checkpoint_records: int = Field(10_000, ge=1, le=1_000_000_000, description="Records between two checkpoints.")
    checkpoint_seconds: float = Field(60.0, ge=0.1, le=86_400, description="Longest time between two checkpoints.")
    witness_keys: WitnessKeysFile | None = Field(None, description="File of witnesses' verifier keys, one per line.")
    anchor_folder: DirectoryPath | None = Field(
        None, description="Folder that a copy of each checkpoint is written to."
    )
    streams_per_subject: int = Field(
        8, ge=1, le=10_000, description="Watches, exports and verifications that a subject may have open."
    )
    streams_per_tenant: int = Field(
        32, ge=1, le=10_000, description="Watches, exports and verifications that a tenant may have open."
    )
    streams_per_process: int = Field(
        256, ge=1, le=100_000, description="Watches, exports and verifications that a process serves at once."
    )
    retention_years: int = Field(7, ge=1, le=7, description="Years that records are kept.")
    relay: Literal["none", "redis", "kafka"] = Field("none", description="Stream that new records are published to.")
    relay_stream_length: int = Field(
        10_000, ge=1_000, le=100_000_000, description="Length that the Redis stream is trimmed to."
    )
    redis_url: RedisUrl = Field("", description="Redis of the relay. Required with `redis`.")
    kafka_brokers: str = Field("", description="Kafka brokers of the relay. Required with `kafka`.")
    kafka_topic: str = Field("toolmesh.audit.records", description="Kafka topic of the relay.")
    kafka_config: FilePath | None = Field(
        None, description="File of `name=value` lines for the Kafka client, such as TLS and SASL settings."
    )

    @model_validator(mode="after")
    def _require_relay_address(self) -> Self:
        required = {
            "redis": ("TOOLMESH_REDIS_URL", self.redis_url),
            "kafka": ("TOOLMESH_KAFKA_BROKERS", self.kafka_brokers),
        }
        variable, value = required.get(self.relay, ("", "-"))
        if not value:
            raise ValueError(f"{variable} is required with TOOLMESH_RELAY={self.relay}")
        return self
