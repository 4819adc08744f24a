"""Settings of the approval process."""

from __future__ import annotations

from pydantic import Field

from libs.common.runtime.setting_types import Peer, PostgresUrl
from libs.common.runtime.settings import ProcessSettings


class Settings(ProcessSettings):
    """The settings of approval: its database and the service that signs tokens."""

    database_url: PostgresUrl = Field(description="PostgreSQL database of the tickets.")
    authz_address: Peer = Field(description="Address of authz: public keys and revocations.")
