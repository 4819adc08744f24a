"""Settings of the gateway process."""

from __future__ import annotations

from pydantic import Field

from libs.common.runtime.setting_types import Peer
from libs.common.runtime.settings import ProcessSettings


class Settings(ProcessSettings):
    """The settings of the gateway: the addresses of its peers."""

    executor_address: Peer = Field(description="Address of the executor.")
    registry_address: Peer = Field(description="Address of the registry.")
    authz_address: Peer = Field(description="Address of authz: public keys, revocations and decisions.")
    audit_address: Peer = Field(description="Address of audit: records and usage.")
    approval_address: Peer = Field(description="Address of approval: tickets.")
