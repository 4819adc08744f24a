"""Settings of the gateway process."""

from __future__ import annotations

from pydantic import Field

from libs.common.runtime.setting_types import HostPort
from libs.common.runtime.settings import ProcessSettings


class Settings(ProcessSettings):
    """The settings of the gateway: the addresses of its peers."""

    executor_address: HostPort = Field(description="Address of the executor.")
    registry_address: HostPort = Field(description="Address of the registry.")
    authz_address: HostPort = Field(description="Address of authz: public keys, revocations and decisions.")
    audit_address: HostPort = Field(description="Address of audit: records and usage.")
