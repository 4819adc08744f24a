"""Settings of the gateway process."""

from __future__ import annotations

from dataclasses import dataclass

from libs.common.runtime.settings import Address, ProcessSettings, address, setting


@dataclass(frozen=True, kw_only=True)
class Settings(ProcessSettings):
    """What the gateway needs beside what every process needs: where its peers are."""

    executor_address: Address = setting("EXECUTOR_ADDRESS", address)
    registry_address: Address = setting("REGISTRY_ADDRESS", address)
    authz_address: Address = setting("AUTHZ_ADDRESS", address)
