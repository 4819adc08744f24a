"""Settings of the authz process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import DirectoryPath, Field, FilePath, PlainValidator, WithJsonSchema

from libs.common.runtime.setting_types import Peer, PostgresUrl, RedisUrl, SealingKeys
from libs.common.runtime.settings import ProcessSettings


def folder_or_https(text: str) -> Path | str:
    """Parse the path of a folder, or an https:// URL. Raises ValueError."""
    if text.startswith("https://") and len(text) > len("https://"):
        return text
    if not Path(text).is_dir():
        raise ValueError("is neither a folder nor an https:// URL")
    return Path(text)


FolderOrHttps = Annotated[
    Path | str, PlainValidator(folder_or_https), WithJsonSchema({"type": "string", "format": "folder or https:// URL"})
]


class Settings(ProcessSettings):
    """The settings of authz."""

    database_url: PostgresUrl = Field(description="PostgreSQL database of policies, tokens and decisions.")
    redis_url: RedisUrl = Field("", description="Redis that wakes the other replicas. Empty: they only poll.")
    audit_address: Peer | None = Field(
        None, description="Address of audit, for the acts of administrators. Empty: they wait in the database."
    )
    signing_keys: DirectoryPath = Field(description="Folder of private keys (`*.pem`) that sign tokens.")
    trusted_issuers: FilePath | None = Field(None, description="JSON file of outside token issuers.")
    did_resolver: FolderOrHttps = Field("", description="DID documents: a folder, or the URL of a resolver.")
    sealing_keys: SealingKeys | None = Field(
        None, description="Folder of keys (`*.key`) that seal arguments in the decision log. Empty: none are stored."
    )
    argument_retention_days: int = Field(
        30, ge=1, le=3650, description="Days for which sealed arguments stay in the decision log, for replays."
    )
    decision_ttl: int = Field(60, ge=1, le=3600, description="Longest time that a decision is cached, in seconds.")
