"""Settings of the registry process."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PlainValidator, WithJsonSchema

from libs.common.runtime.setting_types import Peer, PostgresUrl, RedisUrl
from libs.common.runtime.settings import ProcessSettings
from services.registry.domain.publishing.scan.policy import DEFAULT_POLICY, ScanPolicy

ScanPolicyText = Annotated[
    ScanPolicy,
    PlainValidator(ScanPolicy.parse),
    WithJsonSchema({"type": "string", "format": "list of class=block or class=warn"}),
]


class Settings(ProcessSettings):
    """The settings of the registry."""

    database_url: PostgresUrl = Field(description="PostgreSQL database of the catalog.")
    redis_url: RedisUrl = Field(description="Redis that wakes the other replicas after a change.")
    authz_address: Peer = Field(description="Address of authz: public keys, revocations and decisions.")
    audit_address: Peer | None = Field(
        None,
        description="Address of audit, which counts calls and takes acts. Without it usage is unknown, no version is"
        " retired, and acts wait in the database.",
    )
    removal_policy: Literal["extend", "force"] = Field(
        "extend", description="What happens to a version that is still called at the end of its deprecation."
    )
    scan_policy: ScanPolicyText = Field(
        DEFAULT_POLICY, description="Whether a finding of a class blocks or warns. Other classes keep their default."
    )
